// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// others are the objects of a cluster by their names. They count requests.
type others struct {
	namespaces, accounts map[string]*metav1.ObjectMeta
	requests             []string
	err                  error
}

func (o *others) Namespace(name string) (*metav1.ObjectMeta, error) {
	o.requests = append(o.requests, name)
	return o.namespaces[name], o.err
}

func (o *others) ServiceAccount(namespace, name string) (*metav1.ObjectMeta, error) {
	o.requests = append(o.requests, namespace+"/"+name)
	return o.accounts[namespace+"/"+name], o.err
}

func TestObjectsOfTheCluster(t *testing.T) {
	t.Parallel()
	asking := &metav1.ObjectMeta{Name: "app", Annotations: map[string]string{"lanyard.dev/aws-role-arn": role}}
	strict := &metav1.ObjectMeta{Name: "team", Annotations: map[string]string{"lanyard.dev/allowed-identities": "arn:aws:iam::111122223333:role/other"}}
	away := &metav1.ObjectMeta{Name: "team", Labels: map[string]string{"lanyard.dev/inject": "disabled"}}
	for name, test := range map[string]struct {
		text     string
		others   others
		want     reason.Reason // of the Deployment
		denied   bool
		requests []string
	}{
		"a ServiceAccount of the cluster":           {deployment, others{accounts: map[string]*metav1.ObjectMeta{"team/app": asking}}, reason.Injected, false, []string{"team", "team/app"}},
		"the policy of a namespace of the cluster":  {deployment, others{namespaces: map[string]*metav1.ObjectMeta{"team": strict}, accounts: map[string]*metav1.ObjectMeta{"team/app": asking}}, reason.IdentityNotAllowed, true, []string{"team", "team/app"}},
		"a namespace that opts out":                 {deployment, others{namespaces: map[string]*metav1.ObjectMeta{"team": away}}, reason.OptedOut, false, []string{"team"}},
		"a ServiceAccount that exists nowhere":      {deployment, others{}, reason.ServiceAccountNotFound, true, []string{"team", "team/app"}},
		"the manifests come first":                  {join(account, namespace, deployment), others{namespaces: map[string]*metav1.ObjectMeta{"team": strict}}, reason.Injected, false, nil},
		"the ServiceAccount of every namespace":     {strings.Replace(deployment, "      serviceAccountName: app\n", "", 1), others{}, reason.NoIdentity, false, []string{"team", "team/default"}},
		"two workloads, and one namespace to read ": {join(deployment, strings.Replace(deployment, "web", "api", 1)), others{accounts: map[string]*metav1.ObjectMeta{"team/app": asking}}, reason.Injected, false, []string{"team", "team/app"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, err := inject.Read("test", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			results, err := inject.Inject(documents, defaults(t).Settings, "team", &test.others)
			if err != nil {
				t.Fatal(err)
			}
			if last := results[len(results)-1]; last.Reason != test.want || last.Denied != test.denied {
				t.Errorf("got %+v, want %s and denied %t", last, test.want, test.denied)
			}
			if diff := cmp.Diff(test.requests, test.others.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
	broken := &others{err: errors.New("forbidden")}
	documents, err := inject.Read("test", []byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inject.Inject(documents, defaults(t).Settings, "team", broken); !errors.Is(err, broken.err) {
		t.Errorf("got the error %v, want that of the cluster", err)
	}
}
