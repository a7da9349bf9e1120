// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMissing(t *testing.T) {
	t.Parallel()
	const (
		variable = "LANYARD_TOKEN_FILE=" + mountPath + "/token"
		token    = "token token: sub system:serviceaccount:lanyard-demo:audience, aud vault, pod whoami"
	)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "whoami", Namespace: namespace},
		Spec:       corev1.PodSpec{ServiceAccountName: "audience"},
	}
	tests := map[string]struct {
		printed string
		want    []string
	}{
		"all lines are there":          {printed: "OTHER=1\n" + variable + "\n" + token + "\n"},
		"a variable is missing":        {token + "\n", []string{`the container did not print "` + variable + `"`}},
		"a variable has another value": {variable + "s\n" + token, []string{`the container did not print "` + variable + `"`}},
		"a token has another audience": {
			variable + "\n" + strings.Replace(token, "vault", "mine", 1),
			[]string{`the container did not print "` + token + `"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, missing(test.printed, pod, []grant{plainGrant("vault")})); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
