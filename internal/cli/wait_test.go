// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

func TestCheckWaitsUntilNothingFails(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/shop/serviceaccounts/late"
	for sentence, test := range map[string]struct {
		// created is when the ServiceAccount is created.
		created time.Duration
		args    []string
		code    int
		end     time.Duration
		want    string
	}{
		"and looks every two seconds":   {7 * time.Second, []string{"--wait"}, command.ExitFailed, 8 * time.Second, "? pods of ServiceAccount shop/late"},
		"or the time is over":           {time.Hour, []string{"--wait=5s"}, command.ExitFound, 5 * time.Second, "× ServiceAccount shop/late does not exist"},
		"or five minutes are over":      {time.Hour, []string{"--wait"}, command.ExitFound, 5 * time.Minute, "× ServiceAccount shop/late does not exist"},
		"and looks once without --wait": {7 * time.Second, nil, command.ExitFound, 0, "× ServiceAccount shop/late does not exist"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// The user has no other rights, so all other checks are skipped and cannot fail.
				start, answers := time.Now(), map[string]any{
					"/version": version.Info{GitVersion: "v1.37.2"},
					"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": authorizationv1.SelfSubjectAccessReview{},
				}
				answers[path] = func() any {
					if time.Since(start) < test.created {
						return failure(http.StatusNotFound, metav1.StatusReasonNotFound, `serviceaccounts "late" not found`)
					}
					return corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late"}}
				}
				args := append([]string{"check", "--namespace", "shop", "--service-account", "late"}, test.args...)
				code, out, errOut := runWith(t, answers, "", args...)
				if end := time.Since(start); code != test.code || end != test.end {
					t.Errorf("got %d after %s, want %d after %s: %s%s", code, end, test.code, test.end, out, errOut)
				}
				if !strings.Contains(out, test.want) || strings.Count(out, "\ndry run\n") != 1 {
					t.Errorf("got %s, want %s, and one report", out, test.want)
				}
			})
		})
	}
}
