// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestObjectsOfTheCluster(t *testing.T) {
	t.Parallel()
	asking := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{"lanyard.dev/aws-role-arn": role}}}
	strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{"lanyard.dev/allowed-identities": "arn:aws:iam::111122223333:role/other"}}}
	away := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}}
	for name, test := range map[string]struct {
		text     string
		cluster  []runtime.Object
		want     reason.Reason // of the Deployment
		denied   bool
		requests []string
	}{
		"a ServiceAccount of the cluster":           {deployment, []runtime.Object{asking}, reason.Injected, false, []string{"team", "team/app"}},
		"the policy of a namespace of the cluster":  {deployment, []runtime.Object{strict, asking}, reason.IdentityNotAllowed, true, []string{"team", "team/app"}},
		"a namespace that opts out":                 {deployment, []runtime.Object{away}, reason.OptedOut, false, []string{"team"}},
		"a ServiceAccount that exists nowhere":      {deployment, nil, reason.ServiceAccountNotFound, true, []string{"team", "team/app"}},
		"the manifests come first":                  {join(account, namespace, deployment), []runtime.Object{strict}, reason.Injected, false, nil},
		"the ServiceAccount of every namespace":     {strings.Replace(deployment, "      serviceAccountName: app\n", "", 1), nil, reason.NoIdentity, false, []string{"team", "team/default"}},
		"two workloads, and one namespace to read ": {join(deployment, strings.Replace(deployment, "web", "api", 1)), []runtime.Object{asking}, reason.Injected, false, []string{"team", "team/app"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, err := inject.Read("test", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			client := fake.NewClientset(test.cluster...)
			results, err := inject.Inject(t.Context(), documents, defaults(t).Settings, "team", client)
			if err != nil {
				t.Fatal(err)
			}
			if last := results[len(results)-1]; last.Reason != test.want || last.Denied != test.denied {
				t.Errorf("got %+v, want %s and denied %t", last, test.want, test.denied)
			}
			var requests []string
			for _, action := range client.Actions() {
				get := action.(clienttesting.GetAction)
				requests = append(requests, strings.TrimPrefix(get.GetNamespace()+"/"+get.GetName(), "/"))
			}
			if diff := cmp.Diff(test.requests, requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	broken, forbidden := fake.NewClientset(), errors.New("forbidden")
	broken.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	documents, err := inject.Read("test", []byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inject.Inject(t.Context(), documents, defaults(t).Settings, "team", broken); !errors.Is(err, forbidden) {
		t.Errorf("got the error %v, want that of the cluster", err)
	}
}
