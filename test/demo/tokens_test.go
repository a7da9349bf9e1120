// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/demo/claims"
)

const goodClaims = `{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:demo:app",
	"aud":["sts.amazonaws.com"],"iat":1000,"exp":4600,"kubernetes.io":{"pod":{"name":"p","uid":"u"}}}`

func TestClaimsCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change string // to the claims
		to     string
		want   []string
	}{
		"the claims that the volume requests are valid": {},
		"another audience is reported": {
			`"sts.amazonaws.com"`, `"vault"`, []string{`token aws/token: aud: got ["vault"], want ["sts.amazonaws.com"]`},
		},
		"an additional audience is reported": {
			`"sts.amazonaws.com"`, `"sts.amazonaws.com","api"`, []string{`token aws/token: aud: got ["sts.amazonaws.com" "api"], want ["sts.amazonaws.com"]`},
		},
		"another ServiceAccount is reported": {
			"demo:app", "demo:default", []string{"token aws/token: sub: got system:serviceaccount:demo:default, want system:serviceaccount:demo:app"},
		},
		"another issuer is reported": {
			"https://kubernetes.default", "https://other", []string{"token aws/token: iss: got https://other.svc.cluster.local, want https://kubernetes.default.svc.cluster.local"},
		},
		"another lifetime is reported": {"4600", "4607", []string{"token aws/token: exp - iat: got 3607, want 3600"}},
		"another pod is reported":      {`"name":"p"`, `"name":"q"`, []string{"token aws/token: pod: got q, want p"}},
		"another pod of the same name is reported": {
			`"uid":"u"`, `"uid":"v"`, []string{"token aws/token: pod uid: got v, want u"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c claims.Claims
			if err := json.Unmarshal([]byte(strings.Replace(goodClaims, test.change, test.to, 1)), &c); err != nil {
				t.Fatal(err)
			}
			seconds := int64(3600)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "p", UID: "u"}, Spec: corev1.PodSpec{ServiceAccountName: "app"}}
			got := compare(&c, pod, &corev1.ServiceAccountTokenProjection{Audience: "sts.amazonaws.com", ExpirationSeconds: &seconds, Path: "aws/token"})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
