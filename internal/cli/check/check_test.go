// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/policies"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const deploy = "../../../deploy/base"

// damaged is an installation that each test damages in a different way.
type damaged struct {
	mutating    *admissionregistrationv1.MutatingWebhookConfiguration
	validating  *admissionregistrationv1.ValidatingWebhookConfiguration
	policies    *cluster.Policies
	selfManaged bool
	unread      error // why it is not known
}

// healthy returns the objects of deploy/, with a caBundle.
func healthy(t *testing.T) *damaged {
	t.Helper()
	_, _, ca, err := controlplane.NewServingCertificate(t.TempDir(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	c := &damaged{selfManaged: true, policies: &cluster.Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}}
	for _, name := range []string{"50-mutatingwebhookconfiguration.yaml", "60-validatingwebhookconfiguration.yaml", "70-guard.yaml", "71-fences.yaml"} {
		objects, err := webhook.ReadManifest(filepath.Join(deploy, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			switch object := object.(type) {
			case *admissionregistrationv1.MutatingWebhookConfiguration:
				c.mutating = object
			case *admissionregistrationv1.ValidatingWebhookConfiguration:
				c.validating = object
			case *admissionregistrationv1.ValidatingAdmissionPolicy:
				c.policies.Policies[object.Name] = object
			case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
				c.policies.Bindings = append(c.policies.Bindings, *object)
			}
		}
	}
	for i := range c.mutating.Webhooks {
		c.mutating.Webhooks[i].ClientConfig.CABundle = ca
	}
	for i := range c.validating.Webhooks {
		c.validating.Webhooks[i].ClientConfig.CABundle = ca
	}
	return c
}

// lines judges everything.
func (c *damaged) lines(now time.Time) []finding.Finding {
	var validating []admissionregistrationv1.ValidatingWebhookConfiguration
	if c.validating != nil {
		validating = append(validating, *c.validating)
	}
	lines := append(Registration(c.mutating, validating, nil), Certificates(c.mutating, c.validating, now)...)
	return append(append(lines, Guard(c.mutating, c.policies)), Fences(c.mutating, c.policies, c.selfManaged, c.unread)...)
}

func TestProblemsOfAnInstallation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage func(*damaged)
		now    time.Duration // from now
		want   []string      // the status and a part of each line that is not ok
	}{
		"nothing": {func(*damaged) {}, 0, nil},
		"a webhook is missing": {
			func(c *damaged) { c.mutating.Webhooks = c.mutating.Webhooks[:2] }, 0,
			[]string{"failed: MutatingWebhookConfiguration lanyard has no webhook probe.lanyard.dev"},
		},
		"the validating configuration is missing": {
			func(c *damaged) { c.validating = nil }, 0,
			[]string{"failed: ValidatingWebhookConfiguration lanyard has no webhook serviceaccounts.lanyard.dev"},
		},
		"the caBundle is empty": {
			func(c *damaged) { c.mutating.Webhooks[0].ClientConfig.CABundle = nil }, 0,
			[]string{"failed: webhook pods.lanyard.dev: caBundle: it is empty"},
		},
		"all of them are empty": {
			func(c *damaged) {
				for i := range c.mutating.Webhooks {
					c.mutating.Webhooks[i].ClientConfig.CABundle = nil
				}
				c.validating.Webhooks[0].ClientConfig.CABundle = nil
			}, 0,
			[]string{"failed: webhooks pods.lanyard.dev, serviceaccounts.lanyard.dev, probe.lanyard.dev, serviceaccounts.lanyard.dev (validating): caBundle: it is empty"},
		},
		"the caBundle of the validating webhook is no certificate": {
			func(c *damaged) { c.validating.Webhooks[0].ClientConfig.CABundle = []byte("x") }, 0,
			[]string{"failed: webhook serviceaccounts.lanyard.dev (validating): caBundle: it contains no PEM certificate"},
		},
		"the CA expired": {
			func(*damaged) {}, 100 * 365 * 24 * time.Hour,
			[]string{"failed: webhooks pods.lanyard.dev, serviceaccounts.lanyard.dev, probe.lanyard.dev, serviceaccounts.lanyard.dev (validating): caBundle: the last CA expired at 2"},
		},
		"the guard is missing, and pods are not": {
			func(c *damaged) { delete(c.policies.Policies, "lanyard-guard-pods") }, 0,
			[]string{"failed: ValidatingAdmissionPolicy lanyard-guard-pods does not exist, and webhook pods.lanyard.dev has failurePolicy Ignore"},
		},
		"the half of the guard for injected pods is missing": {
			func(c *damaged) { delete(c.policies.Policies, "lanyard-guard-injected") }, 0,
			[]string{"failed: ValidatingAdmissionPolicy lanyard-guard-injected does not exist, and webhook pods.lanyard.dev has failurePolicy Ignore"},
		},
		"the guard is missing on purpose": {
			func(c *damaged) {
				delete(c.policies.Policies, "lanyard-guard-pods")
				c.mutating.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail)
			}, 0,
			[]string{"warning: ValidatingAdmissionPolicy lanyard-guard-pods does not exist: while no replica responds, all pods are denied"},
		},
		"the guard only warns": {
			func(c *damaged) {
				for i := range c.policies.Bindings {
					if c.policies.Bindings[i].Spec.PolicyName == "lanyard-guard-pods" {
						c.policies.Bindings[i].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
					}
				}
			}, 0,
			[]string{"failed: ValidatingAdmissionPolicy lanyard-guard-pods only warns"},
		},
		"the policies have no bindings": {
			func(c *damaged) { c.policies.Bindings = nil }, 0,
			[]string{
				"failed: ValidatingAdmissionPolicy lanyard-guard-pods has no effect", "warning: ValidatingAdmissionPolicy lanyard-guard-marks has no effect",
				"warning: ValidatingAdmissionPolicy lanyard-guard-serviceaccounts has no effect", "warning: ValidatingAdmissionPolicy lanyard-guard-registration has no effect",
			},
		},
		"the fence around the webhook configurations is missing": {
			func(c *damaged) { delete(c.policies.Policies, "lanyard-guard-registration") }, 0,
			[]string{"warning: ValidatingAdmissionPolicy lanyard-guard-registration does not exist: anyone with the webhook's token can change its webhook configurations"},
		},
		"that fence is missing, and the webhook may not write them": {
			func(c *damaged) {
				delete(c.policies.Policies, "lanyard-guard-registration")
				c.selfManaged = false
			}, 0, nil,
		},
		"that fence is missing, and nobody knows whether the webhook may write them": {
			func(c *damaged) {
				delete(c.policies.Policies, "lanyard-guard-registration")
				c.selfManaged, c.unread = false, errors.New("the webhook runs outside the cluster")
			}, 0,
			[]string{"warning: ValidatingAdmissionPolicy lanyard-guard-registration does not exist, and it is unknown whether it is needed: the webhook runs outside the cluster"},
		},
		"that fence is missing, and the user may not look at the webhook": {
			func(c *damaged) {
				delete(c.policies.Policies, "lanyard-guard-registration")
				c.selfManaged, c.unread = false, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`User "a" cannot list resource "deployments" in API group "apps" in the namespace "l"`))
			}, 0,
			[]string{"skipped: ValidatingAdmissionPolicy lanyard-guard-registration does not exist, and it is unknown whether it is needed: you may not list deployments.apps in the namespace l"},
		},
		"the fence around the guard is missing": {
			func(c *damaged) { delete(c.policies.Policies, "lanyard-guard-serviceaccounts") }, 0,
			[]string{"warning: ValidatingAdmissionPolicy lanyard-guard-serviceaccounts does not exist: very large ServiceAccounts can slow down the API server"},
		},
		"there is no guard to slow down": { // deploy/components/fail-closed
			func(c *damaged) {
				for _, name := range []string{"pods", "injected", "serviceaccounts"} {
					delete(c.policies.Policies, "lanyard-guard-"+name)
				}
				c.mutating.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail)
			}, 0,
			[]string{"warning: ValidatingAdmissionPolicy lanyard-guard-pods does not exist: while no replica responds, all pods are denied"},
		},
		"an expression has an error": {
			func(c *damaged) {
				c.policies.Policies["lanyard-guard-marks"].Status.TypeChecking = &admissionregistrationv1.TypeChecking{
					ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{{Warning: "undefined field"}},
				}
			}, 0,
			[]string{"warning: ValidatingAdmissionPolicy lanyard-guard-marks has an expression with an error: undefined field"},
		},
		"both the guard and Fail": {
			func(c *damaged) { c.mutating.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail) }, 0,
			[]string{"warning: the guard is on, but webhook pods.lanyard.dev has failurePolicy Fail"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := healthy(t)
			test.damage(c)
			expect(t, c.lines(time.Now().Add(test.now)), test.want)
		})
	}
}

// expect compares the lines that are not ok.
func expect(t *testing.T, lines []finding.Finding, want []string) {
	t.Helper()
	var got []string
	for _, line := range lines {
		if line.Status != finding.OK {
			got = append(got, string(line.Status)+": "+line.Text)
		}
		if fine := line.Status == finding.OK || line.Status == finding.NotApplicable; fine != (line.Fix == "") {
			t.Errorf("%q has the next step %q", line.Text, line.Fix)
		}
	}
	if len(lines) == 0 || len(got) != len(want) {
		t.Fatalf("got %d lines and %q, want %q", len(lines), got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

// The arguments of the Deployment show whether the webhook may write its webhook configurations.
func TestWhichFencesAreNeededIsReadInTheCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		argument string
		want     []string
	}{
		"the arguments of deploy/base": {"", []string{"warning: ValidatingAdmissionPolicy lanyard-guard-registration does not exist: anyone"}},
		"the certificate is in files":  {"--certificate-source=files", nil},
		"an argument with a mistake":   {"--v=x", []string{"warning: ValidatingAdmissionPolicy lanyard-guard-registration does not exist, and it is unknown whether it is needed: deployment lanyard-system/lanyard-webhook: "}},
	} {
		var objects []runtime.Object
		for _, file := range []string{"30-service.yaml", "40-deployment.yaml"} {
			list, err := webhook.ReadManifest(filepath.Join(deploy, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range list {
				objects = append(objects, object)
			}
		}
		container := &objects[1].(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
		if test.argument != "" {
			container.Args = append(container.Args, test.argument)
		}
		c := healthy(t)
		delete(c.policies.Policies, "lanyard-guard-registration")
		k := &checkCommand{survey: cluster.NewSurvey(fake.NewClientset(objects...))}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, k.fences(t.Context(), c.mutating, c.policies), test.want)
		})
	}
}

// newCA returns a caBundle that expires at this time.
func newCA(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: certificate})
}

// The first CA to expire is reported, with its webhook: if only half of the registration was
// written, the other half has an old CA.
func TestTheCAThatExpiresFirst(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	soon, later := newCA(t, now.Add(2*day)), newCA(t, now.Add(90*day))
	for name, test := range map[string]struct {
		damage func(*damaged)
		want   string
	}{
		"none expires soon":               {func(*damaged) {}, "ok: the CA in the caBundle is valid until 2027-02-22T00:00:00Z"},
		"the CA of the pods' webhook":     {func(c *damaged) { c.mutating.Webhooks[0].ClientConfig.CABundle = soon }, "warning: webhook pods.lanyard.dev: caBundle: the last CA expires at 2026-11-26T00:00:00Z"},
		"the CA of the last webhook":      {func(c *damaged) { c.validating.Webhooks[0].ClientConfig.CABundle = soon }, "warning: webhook serviceaccounts.lanyard.dev (validating): caBundle: the last CA expires at 2026-11-26T00:00:00Z"},
		"a CA beside its successor":       {func(c *damaged) { c.mutating.Webhooks[0].ClientConfig.CABundle = slices.Concat(soon, later) }, "ok: the CA in the caBundle is valid until 2027-02-22T00:00:00Z"},
		"a CA that expires in eight days": {func(c *damaged) { c.mutating.Webhooks[1].ClientConfig.CABundle = newCA(t, now.Add(8*day)) }, "ok: the CA in the caBundle is valid until 2026-12-02T00:00:00Z"},
	} {
		c := healthy(t)
		for i := range c.mutating.Webhooks {
			c.mutating.Webhooks[i].ClientConfig.CABundle = later
		}
		c.validating.Webhooks[0].ClientConfig.CABundle = later
		test.damage(c)
		lines := Certificates(c.mutating, c.validating, now)
		if len(lines) != 1 || string(lines[0].Status)+": "+lines[0].Text != test.want {
			t.Errorf("%s: got %q, want %q", name, lines, test.want)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]finding.Status{
		"v1.36.3": finding.OK, "v1.30.0": finding.OK, "v1.31.1-eks-abc": finding.OK, "v1.33.2+k3s1": finding.OK,
		"v1.29.9": finding.Warning, "v1.29.0": finding.Warning, "v1.28.15": finding.Failed, "latest": finding.Skipped,
	} {
		if got := Version(version); got.Status != want {
			t.Errorf("%s: got %v, want %s", version, got, want)
		}
	}
}

func documents(issuer string, ids ...string) *cloud.Documents {
	d := &cloud.Documents{Discovery: cloud.Discovery{Issuer: issuer}, Keys: map[string]string{}}
	for _, id := range ids {
		d.Keys[id] = id
	}
	return d
}

// member is a cluster of a fleet, with the roles of its ServiceAccounts.
func member(name, key string, roles ...string) Member {
	m := Member{Name: name, Documents: documents(issuer, key), Identities: map[string]map[string]string{}}
	for _, one := range roles {
		account, role, _ := strings.Cut(one, "=")
		if m.Identities[account] = map[string]string{}; role != "" {
			m.Identities[account]["lanyard.dev/aws-role-arn"] = role
		}
	}
	return m
}

// pods returns the pods of a Deployment: ready, not ready, or ready and evicted, completed or deleted.
func pods(states ...string) []corev1.Pod {
	list := make([]corev1.Pod, len(states))
	for i, state := range states {
		status := corev1.ConditionTrue
		switch state {
		case "unready":
			status = corev1.ConditionFalse
		case "evicted":
			list[i].Status.Phase = corev1.PodFailed
		case "completed":
			list[i].Status.Phase = corev1.PodSucceeded
		case "deleted":
			list[i].DeletionTimestamp = &metav1.Time{}
		}
		list[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
	return list
}

const issuer = "https://issuer.example"

func TestJudgements(t *testing.T) {
	t.Parallel()
	one := func(f finding.Finding) []finding.Finding { return []finding.Finding{f} }
	replicas := func(states ...string) []finding.Finding { return one(Replicas("s", "n", "d", pods(states...))) }
	forbidden := func(message string) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(message))
	}
	mutating := healthy(t).mutating
	own, fleet := documents(issuer, "a", "b"), []Member{member("eu", "a"), member("us", "b")}
	roles := func(eu, us string) []finding.Finding {
		return Fleet([]Member{member("eu", "a", "shop/cart="+eu), member("us", "b", "shop/cart="+us)}, own)
	}
	reserved := func(p *cluster.Injecting, issuer string) []finding.Finding {
		return append(one(finding.Passed("the issuer is public")), ReservedIssuer(p, issuer)...)
	}
	const local = "https://kubernetes.default.svc.damaged.local"
	const differ = "warning: ServiceAccount shop/cart is one identity for clouds, but the clusters differ: lanyard.dev/aws-role-arn is "
	const reservedText = "failed: a ServiceAccount can ask for tokens that are valid for the API server: the policies do not reserve the audience " + issuer
	for sentence, test := range map[string]struct {
		found []finding.Finding
		want  []string // those that are not fine
	}{
		"two replicas":           {replicas("ready", "ready"), nil},
		"one replica":            {replicas("ready"), []string{"warning: Service s/n has 1 ready replica, of 1"}},
		"no replica":             {replicas(), []string{"failed: Service s/n has no pods"}},
		"two replicas of three":  {replicas("ready", "unready", "ready"), []string{"warning: Service s/n has 2 ready replicas, of 3"}},
		"no ready replica":       {replicas("unready", "unready"), []string{"failed: Service s/n has no ready replica, of 2"}},
		"pods that a drain left": {replicas("evicted", "completed", "deleted", "ready", "ready"), nil},
		"one of them is ready":   {replicas("evicted", "completed", "deleted", "ready"), []string{"warning: Service s/n has 1 ready replica, of 1"}},
		"none of them is a pod":  {replicas("evicted", "completed", "deleted"), []string{"failed: Service s/n has no pods"}},
		"rights that are missing": {[]finding.Finding{noRight("deployments.apps", "lanyard-system"), noRight("clusterroles.rbac.authorization.k8s.io", "")}, []string{
			"failed: you may not create deployments.apps in the namespace lanyard-system", "failed: you may not create clusterroles.rbac.authorization.k8s.io",
		}},
		"validating configurations that cannot be read": {
			Registration(mutating, nil, forbidden(`User "a" cannot get resource "validatingwebhookconfigurations" in API group "admissionregistration.k8s.io" at the cluster scope`)),
			[]string{"skipped: ValidatingWebhookConfiguration lanyard cannot be read: you may not get validatingwebhookconfigurations.admissionregistration.k8s.io"},
		},
		"settings without a right": {
			one(Unread(forbidden(`User "a" cannot get resource "services" in API group "" in the namespace "l"`))),
			[]string{"skipped: the settings of the webhook cannot be read, so the built-in defaults are used: you may not get services in the namespace l"},
		},
		"settings that cannot be read": {
			one(Unread(errors.New("the webhook runs outside the cluster"))),
			[]string{"warning: the settings of the webhook cannot be read, so the built-in defaults are used: the webhook runs outside the cluster"},
		},

		"all keys are public":              {Issuer(own, documents(issuer, "a", "b"), nil, "a"), nil},
		"keys of other clusters are fine":  {Issuer(own, documents(issuer, "a", "b", "c"), nil, "a"), nil},
		"a key is not public":              {Issuer(own, documents(issuer, "a"), nil, "a"), []string{"failed: key b of the cluster is not public: clouds deny the tokens"}},
		"the key that signs is not public": {Issuer(own, documents(issuer, "a"), nil, "b"), []string{"failed: key b of the cluster is not public, and signs at present: clouds deny the tokens"}},
		"the key that signs is not served": {Issuer(own, documents(issuer, "a", "b"), nil, "c"), []string{"failed: the cluster signs tokens with key c, but does not serve it"}},
		"the documents cannot be read":     {Issuer(own, nil, errors.New("no such host"), ""), []string{"warning: the issuer https://issuer.example cannot be read from here: no such host"}},
		"the issuer is not public":         {Issuer(documents(local, "a"), nil, nil, ""), []string{"warning: the issuer " + local + " is not public"}},
		"the documents of a local issuer":  {Issuer(documents(local, "a"), documents(local, "a"), nil, "a"), nil},

		"no policies inject":              {reserved(nil, issuer), nil},
		"the issuer is not reserved":      {reserved(&cluster.Injecting{}, issuer), []string{reservedText}},
		"another issuer is reserved":      {reserved(&cluster.Injecting{Source: policies.Source{ReservedAudiences: []string{issuer + "/"}}}, issuer), []string{reservedText}},
		"the issuer is reserved":          {reserved(&cluster.Injecting{Source: policies.Source{ReservedAudiences: []string{"a", issuer}}}, issuer), nil},
		"the issuer is a common audience": {reserved(&cluster.Injecting{}, "https://kubernetes.default.svc.cluster.local"), nil},

		"a fleet in order":                                  {roles("x", "x"), nil},
		"a cluster without its key":                         {Fleet(fleet, documents(issuer, "a")), []string{"failed: us: key b of the cluster is not public: clouds deny the tokens"}},
		"a key of no cluster":                               {Fleet(fleet, documents(issuer, "a", "b", "c")), []string{"warning: key c is published, but none of the 2 clusters serves it: anyone who holds it can act as any of them"}},
		"two roles for one name":                            {roles("x", "y"), []string{differ + "x in eu, y in us"}},
		"a role for one of two":                             {roles("x", ""), []string{differ + "x in eu, not set in us"}},
		"a ServiceAccount of one cluster":                   {Fleet([]Member{member("eu", "a", "shop/cart=x"), fleet[1]}, own), nil},
		"documents that were not read say nothing of a key": {Fleet(fleet, nil), nil},

		"clocks that are the same": {Clocks(0, map[string]time.Duration{"a": time.Second, "b": -2 * time.Second}), nil},
		"no node":                  {Clocks(29*time.Second, nil), nil},
		"this machine is behind":   {Clocks(-5*time.Minute, map[string]time.Duration{"a": 0}), []string{"warning: the clock of this machine is 5m0s behind that of the API server"}},
		"this machine is ahead":    {Clocks(31*time.Second, nil), []string{"warning: the clock of this machine is 31s ahead of that of the API server"}},
		"two of three nodes":       {Clocks(0, map[string]time.Duration{"b": time.Hour, "a": -time.Hour, "c": 0}), []string{"warning: the clocks of nodes differ from that of the API server: a (1h0m0s behind), b (1h0m0s ahead)"}},

		"no installation":        {one(Absent()), []string{"failed: Lanyard is not installed"}},
		"an installation before": {Installed([]*admissionregistrationv1.MutatingWebhookConfiguration{mutating}), []string{"warning: Lanyard is already installed: MutatingWebhookConfiguration lanyard"}},
		"nothing is unguarded":   {one(Unguarded("", 0, "", true)), nil},
		"unguarded in a cluster": {one(Unguarded("", 2, "n/a", false)), []string{"warning: the guard's label is missing on 2 ServiceAccounts, for example n/a"}},
		"unguarded in a namespace": {
			one(Unguarded("n", 2, "n/a", false)),
			[]string{"warning: the guard's label is missing on 2 ServiceAccounts in the namespace n, for example n/a"},
		},
		"current pods": {Pods("", map[injected.State]int{injected.Current: 5}), nil},
		"other pods": {Pods("n", map[injected.State]int{injected.Stale: 2, injected.Without: 1, workload.Shadowed: 2}), []string{
			"warning: 3 pods in the namespace n must be replaced: 2 stale, 1 without credentials",
			"warning: SDKs may ignore the credentials of 2 pods in the namespace n, because of variables in their containers",
		}},
		"one pod": {Pods("", map[injected.State]int{injected.Without: 1}), []string{"warning: 1 pod must be replaced: 0 stale, 1 without credentials"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			expect(t, test.found, test.want)
		})
	}
}

func TestPublishedKeysOfOtherClusters(t *testing.T) {
	t.Parallel()
	found := Issuer(documents(issuer, "a", "b"), documents(issuer, "a", "b", "c", "d"), nil, "a")
	if text := found[len(found)-1].Text; !strings.HasPrefix(text, "other published keys: c, d. Clusters that sign with them can act as this one.") {
		t.Errorf("got %q, want the keys of other clusters", text)
	}
}

func TestWhyAReplicaIsNotReady(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
	for sentence, test := range map[string]struct {
		statuses []corev1.ContainerStatus
		want     string
	}{
		"it was not scheduled":       {nil, "To see why: kubectl describe pod/a --namespace n"},
		"its image cannot be pulled": {[]corev1.ContainerStatus{{State: waiting}}, "To see why: kubectl describe pod/a --namespace n"},
		"it runs":                    {[]corev1.ContainerStatus{{State: running}}, "To see why: kubectl logs pod/a --tail 20 --namespace n"},
		"it waits to run again":      {[]corev1.ContainerStatus{{State: waiting, RestartCount: 3}}, "To see why: kubectl logs pod/a --tail 20 --namespace n"},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.PodStatus{ContainerStatuses: test.statuses}}
		if got := Replicas("n", "s", "", []corev1.Pod{pod}).Fix; got != test.want {
			t.Errorf("%s: got %q, want %q", sentence, got, test.want)
		}
	}
}

// Without the webhook configurations, the guard denies every pod that needs credentials.
func TestTheFixOfAMissingServiceKeepsNoGuard(t *testing.T) {
	t.Parallel()
	const want = "Install Lanyard again. To remove it instead, remove its guard, too: alone, it denies pods that need credentials."
	if got := noService("lanyard-system", "lanyard-webhook").Fix; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOldDocumentsInACache(t *testing.T) {
	t.Parallel()
	public := documents(issuer, "a")
	public.Age = time.Hour
	want := "A cache, such as a CDN, has had these documents for 1h0m0s. If you published since, purge it. Otherwise: Publish the documents"
	if fix := Issuer(documents(issuer, "a", "b"), public, nil, "a")[0].Fix; !strings.HasPrefix(fix, want) {
		t.Errorf("got %q, want %q first", fix, want)
	}
}

// Somebody else may have published the key.
func TestTheIDOfAKeyIsQuotedForTheShell(t *testing.T) {
	t.Parallel()
	found := Fleet([]Member{member("eu", "a"), member("us", "a")}, documents(issuer, "a", "$(x)"))
	if len(found) != 1 || !strings.Contains(found[0].Fix, " --remove-key '$(x)' --to ") {
		t.Errorf("got %+v, want the ID in quotes", found)
	}
}

func TestNamesThatDifferInAFleetAreLimited(t *testing.T) {
	t.Parallel()
	var eu, us []string
	for i := range 30 {
		eu, us = append(eu, fmt.Sprintf("shop/%d=x", i)), append(us, fmt.Sprintf("shop/%d=y", i))
	}
	found := Fleet([]Member{member("eu", "a", eu...), member("us", "b", us...)}, documents(issuer, "a", "b"))
	if len(found) != 20 || !strings.HasSuffix(found[19].Text, "; and 10 more ServiceAccounts") {
		t.Errorf("got %d findings, want 20, the last one with the number of others", len(found))
	}
}

func TestSeveralInstallations(t *testing.T) {
	t.Parallel()
	one := healthy(t).mutating
	two := one.DeepCopy()
	two.Name = "second"
	several := func(ready ...int) finding.Finding {
		return Several(&cluster.Installation{Registrations: []*admissionregistrationv1.MutatingWebhookConfiguration{one, two}, Ready: ready})
	}
	expect(t, []finding.Finding{several(2, -1)}, []string{"failed: Lanyard is installed 2 times: MutatingWebhookConfigurations lanyard (2 ready replicas), second (replicas unknown)"})
	for fix, f := range map[string]finding.Finding{
		"Keep lanyard, and remove the other: kubectl delete mutatingwebhookconfiguration/second validatingwebhookconfiguration/second": several(2, -1),
		"Choose one to keep. To remove all but lanyard: kubectl delete ":                                                               several(2, 2),
	} {
		if !strings.HasPrefix(f.Fix, fix) {
			t.Errorf("got the next step %q, want %q", f.Fix, fix)
		}
	}
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	good, skipped := finding.Passed("called"), finding.Finding{Status: finding.Skipped, Text: "lost"}
	bad := finding.Finding{Status: finding.Failed, Text: "the API server cannot call the webhook: timeout"}
	for name, test := range map[string]struct {
		lines   []finding.Finding
		servers int
		want    string
	}{
		"one":                {[]finding.Finding{good}, 0, "ok: called"},
		"one of several":     {[]finding.Finding{good}, 3, "ok: called"},
		"all called":         {[]finding.Finding{good, good}, 2, "ok: the API server can call the webhook: it did in 2 of 2 dry runs, each over its own connection to one of 2 API servers"},
		"one fails":          {[]finding.Finding{good, bad, good}, 0, "failed: the webhook was called in 2 of 3 dry runs, each over its own connection: the API server cannot call the webhook: timeout"},
		"the first fails":    {[]finding.Finding{bad, good}, 0, "failed: the webhook was called in 1 of 2 dry runs"},
		"all fail":           {[]finding.Finding{bad, bad}, 2, "failed: the API server cannot call the webhook: timeout"},
		"a connection fails": {[]finding.Finding{good, skipped}, 0, "ok: the API server can call the webhook: it did in 1 of 2 dry runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Attempts(test.lines, test.servers)
			if text := string(got.Status) + ": " + got.Text; !strings.HasPrefix(text, test.want) {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}

func TestRedaction(t *testing.T) {
	t.Parallel()
	r := newRedactor(true)
	r.name("namespace", "shop")
	r.name("serviceaccount", "shop-cart")
	r.name("namespace", "lanyard-system")
	for text, want := range map[string]string{
		"pods of ServiceAccount shop/shop-cart get credentials: aws, from volume bound-sa-token": "pods of ServiceAccount <namespace-1>/<serviceaccount-1> get credentials: aws, from volume bound-sa-token",
		"Service lanyard-system/lanyard-webhook has 2 ready replicas":                            "Service lanyard-system/lanyard-webhook has 2 ready replicas",
		"shop shop, workshop": "<namespace-1> <namespace-1>, workshop",
		"webhook pods.lanyard.dev, clusterroles.rbac.authorization.k8s.io, deployments.apps of v1.31.1-eks-abc": "webhook pods.lanyard.dev, clusterroles.rbac.authorization.k8s.io, deployments.apps of v1.31.1-eks-abc",
		`the issuer https://oidc.example/id/ABC is not public`:                                                  `the issuer <url-1> is not public`,
		`User "alice" may not`: `User "<user-1>" may not`,
		`dial tcp 10.96.0.10:443, [fd00::1]:443, a.corp.example`:                                                                   `dial tcp <host-1>:443, <host-2>:443, <host-3>`,
		`"arn:aws:iam::111122223333:role/cart": cart@p.iam.gserviceaccount.com 11111111-2222-3333-4444-555555555555, 123456789012`: `"<identity-1>": <identity-2> <identity-3>, <identity-4>`,
	} {
		// Except for their numbers, placeholders do not depend on the order of the texts.
		fresh := newRedactor(true)
		for _, name := range r.names {
			fresh.placeholders[name] = r.placeholders[name]
		}
		fresh.names = r.names
		if got := fresh.text(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := newRedactor(false).text("shop"); got != "shop" {
		t.Errorf("got %q", got)
	}
}

func TestPeers(t *testing.T) {
	t.Parallel()
	var all []admissionregistrationv1.MutatingWebhookConfiguration
	for _, name := range []string{"azure-wi-webhook-mutating-webhook-configuration", "lanyard", "pod-identity-webhook", "unrelated"} {
		all = append(all, admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	all[0].Webhooks = []admissionregistrationv1.MutatingWebhook{{ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy)}}
	azure := "warning: MutatingWebhookConfiguration azure-wi-webhook-mutating-webhook-configuration injects identities as well. " +
		"It is called before Lanyard, with the reinvocationPolicy IfNeeded. Safe: Lanyard keeps its variables and its token."
	eks := "warning: MutatingWebhookConfiguration pod-identity-webhook injects identities as well. " +
		"It is called after Lanyard, with the reinvocationPolicy Never. Safe: it keeps the variables of Lanyard"
	for _, tt := range []struct {
		all       []admissionregistrationv1.MutatingWebhookConfiguration
		adopt     []string
		want      []string
		switching bool
	}{
		{all: all, want: []string{azure, eks}},
		{all: all, adopt: []string{"gcp"}, want: []string{azure, eks}},
		{all: all, adopt: []string{"azure"}, want: []string{eks}, switching: true},
		{all: all, adopt: []string{"azure", "eks"}, switching: true},
		{all: all[3:], adopt: []string{"azure", "eks"}},
		{all: all[2:], want: []string{eks}},
	} {
		lines, switching := Peers(tt.all, "lanyard", tt.adopt)
		expect(t, lines, tt.want)
		if switching != tt.switching {
			t.Errorf("%q: got a switch %v, want %v", tt.adopt, switching, tt.switching)
		}
	}
}

// During the first steps of a migration, the guard is off, because the other webhook provides the
// credentials.
func TestGuardMayBeOffDuringMigration(t *testing.T) {
	t.Parallel()
	for status, want := range map[finding.Status]finding.Status{finding.Failed: finding.Warning, finding.OK: finding.OK, finding.Skipped: finding.Skipped} {
		if got := DuringSwitch(finding.Finding{Status: status}); got.Status != want {
			t.Errorf("%s: got %s, want %s", status, got.Status, want)
		}
	}
}

// The pages and headings that the findings link to exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	source := []byte(`"` + fleetPage + `"`)
	for _, file := range []string{"check.go", "check_command.go", "read.go", "../workload/status_command.go", "../../probe/probe.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	links := regexp.MustCompile(`"([a-z/-]+\.md)(#[a-z-]+)?"`).FindAllSubmatch(source, -1)
	if len(links) < 10 {
		t.Fatalf("got %d links, want more: the pattern is wrong", len(links))
	}
	for _, link := range links {
		page, err := os.ReadFile(filepath.Join("../../../docs", string(link[1])))
		if err != nil {
			t.Error(err)
			continue
		}
		found := len(link[2]) == 0
		for line := range strings.Lines(string(page)) {
			if heading, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); isHeading && strings.HasPrefix(line, "#") {
				anchor := regexp.MustCompile(`[^a-z -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
				found = found || "#"+strings.ReplaceAll(anchor, " ", "-") == string(link[2])
			}
		}
		if !found {
			t.Errorf("%s has no heading %s", link[1], link[2])
		}
	}
}

// The policies of a removed installation deny pods that nothing injects.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	guard := []cluster.Leftover{{Kind: "validatingadmissionpolicybinding", Name: "old-guard-pods", DeniesPods: true}, {Kind: "validatingadmissionpolicybinding", Name: "old-guard-marks"}}
	const remove = "kubectl delete validatingadmissionpolicybinding/old-guard-pods validatingadmissionpolicybinding/old-guard-marks"
	for sentence, test := range map[string]struct {
		left  []cluster.Leftover
		alone bool
		want  string
		fix   string
	}{
		"a guard, and nothing injects":        {guard, true, "failed: the guard of a removed installation still denies pods: ValidatingAdmissionPolicyBindings old-guard-pods, old-guard-marks", "Remove it, or install Lanyard again: " + remove},
		"a guard beside another installation": {guard, false, "warning: a removed installation left policies behind: ", "Remove them: " + remove},
		"only a fence":                        {guard[1:], true, "warning: a removed installation left policies behind: ", "Remove them: kubectl delete validatingadmissionpolicybinding/old-guard-marks"},
	} {
		found := Leftovers(test.left, test.alone)
		expect(t, found, []string{test.want})
		if found[0].Fix != test.fix {
			t.Errorf("%s: got %q, want %q", sentence, found[0].Fix, test.fix)
		}
	}
	if found := Leftovers(nil, true); found != nil {
		t.Errorf("got %v without leftovers", found)
	}
}

func TestTheClockOfTheAPIServer(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	date := at.Format(http.TimeFormat)
	for sentence, test := range map[string]struct {
		date          string
		before, after time.Duration
		want          time.Duration
	}{
		"the same second":     {date, 100 * time.Millisecond, 900 * time.Millisecond, 0},
		"a slow response":     {date, -10 * time.Second, 10 * time.Second, 0},
		"this machine ahead":  {date, time.Minute, 61 * time.Second, time.Minute},
		"this machine behind": {date, -2 * time.Minute, -time.Minute, -time.Minute},
		"no header":           {"", time.Hour, time.Hour, 0},
	} {
		if got := skewOfDate(test.date, at.Add(test.before), at.Add(test.after)); got != test.want {
			t.Errorf("%s: got %s, want %s", sentence, got, test.want)
		}
	}
}

func TestTheFencesOfPolicies(t *testing.T) {
	t.Parallel()
	objects, err := webhook.ReadManifest("../../../deploy/policies/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for _, object := range objects {
		all = append(all, object)
	}
	client := fake.NewClientset(all...)
	injecting, err := cluster.NewSurvey(client).Injecting(t.Context())
	if err != nil || injecting == nil || injecting.Problem != "" {
		t.Fatalf("got %+v and error %v, want policies that inject", injecting, err)
	}
	expect(t, PolicyFences(injecting), nil)
	injecting.Fences.Bindings = nil
	expect(t, PolicyFences(injecting), []string{
		"warning: ValidatingAdmissionPolicy lanyard-keep-marks has no effect: it has no binding: users who may write the status of a pod",
		"warning: ValidatingAdmissionPolicy lanyard-limit-serviceaccounts has no effect: it has no binding: very large ServiceAccounts",
	})
	clear(injecting.Fences.Policies)
	expect(t, PolicyFences(injecting), []string{
		"warning: ValidatingAdmissionPolicy lanyard-keep-marks does not exist",
		"warning: ValidatingAdmissionPolicy lanyard-limit-serviceaccounts does not exist",
	})
}

func TestTheIssuerOfTheClusterIsCompared(t *testing.T) {
	t.Parallel()
	const issuer = "https://issuer.internal" // not public, so it is not read
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := `{"issuer": "` + issuer + `", "jwks_uri": "` + issuer + `/openid/v1/jwks"}`
		if r.URL.Path != cloud.DiscoveryPath {
			text = `{"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": "AQAB", "e": "AQAB"}]}`
		}
		_, _ = io.WriteString(w, text)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	injecting := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "lanyard-inject-pods", Annotations: map[string]string{annotations.PoliciesSource: "{}"}}}
	k := &checkCommand{CLI: &command.CLI{}, client: client, survey: cluster.NewSurvey(fake.NewClientset(injecting)), wait: time.Minute}
	k.issuer(t.Context())
	expect(t, k.report.Findings, []string{"warning: the issuer " + issuer + " is not public", "failed: a ServiceAccount can ask for tokens that are valid for the API server"})
}
