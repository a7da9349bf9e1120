// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
)

// The pods are the webhook's own output.
func TestFromPodReadsTheInjection(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	account, pod := decision(t, "several/three-clouds-in-every-kind-of-container")
	parsed, errs := s.ParseServiceAccount(account.Namespace, account.Name, account.Annotations)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	injection := provider.NewInjection(parsed.Identities, &provider.Subject{
		Namespace: account.Namespace, ServiceAccount: account.Name, MountPath: annotations.DefaultTokenMountPath, TokenExpirationSeconds: 3600,
	})
	if len(injection.Providers) != 3 {
		t.Fatalf("got %d providers, want 3", len(injection.Providers))
	}
	for _, want := range injection.Providers {
		got, err := cloud.FromPod(readPod(t, pod, s), s, &account.ObjectMeta, want.Name)
		if err != nil {
			t.Fatal(err)
		}
		variables := map[string]string{}
		for _, v := range want.Variables {
			variables[v.Name] = v.Value
		}
		wanted := &exchange.Request{
			Namespace: account.Namespace, ServiceAccount: account.Name,
			Provider: want.Name, Audience: want.Token.Audience, ExpirationSeconds: want.Token.ExpirationSeconds, Variables: variables, File: want.File.Content,
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
	for name, want := range map[string]string{"token": "lacks token", "other": `provider "other" does not exist`} {
		if _, err := cloud.FromPod(readPod(t, pod, s), s, &account.ObjectMeta, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
	pod.Spec.Volumes = nil
	if _, err := cloud.FromPod(readPod(t, pod, s), s, &account.ObjectMeta, "aws"); err == nil || !strings.Contains(err.Error(), "have no token with the path aws/token") {
		t.Errorf("without volumes: got error %v", err)
	}
}

// The session name of a pod is its own name.
func TestTheSessionNameIsTheNameOfThePod(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	_, pod := decision(t, "aws/session-name-of-a-named-pod")
	got, err := cloud.FromPod(readPod(t, pod, s), s, &metav1.ObjectMeta{}, "aws")
	if err != nil || got.Variables["AWS_ROLE_SESSION_NAME"] != "pod" {
		t.Errorf("got %+v and error %v", got, err)
	}
}

func readPod(t *testing.T, pod *corev1.Pod, s *annotations.Settings) *injected.Pod {
	t.Helper()
	read, err := injected.Read(pod, s)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// decision returns the ServiceAccount of a golden case, and the injected pod.
func decision(t *testing.T, name string) (account *corev1.ServiceAccount, pod *corev1.Pod) {
	t.Helper()
	c, err := decisions.ReadCase("../../../test/decisions", name)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Result()
	if err == nil {
		err = errors.Join(json.Unmarshal(c.ServiceAccount, &account), json.Unmarshal(result, &pod))
	}
	if err != nil {
		t.Fatal(err)
	}
	return account, pod
}
