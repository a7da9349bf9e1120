// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// configs are configuration files, keys are annotations of random ServiceAccounts, variables are of
// random containers, and choices are annotations of random pods.
var (
	configs = []string{"", "token-expiration-seconds: 7200\n", "default-allowed-identities: \"*:role/app,*-0000000000??,vault\"\n", "token-mount-path: /var/run/other\n"}
	keys    = []map[string]string{
		{"lanyard.dev/aws-role-arn": role}, {"lanyard.dev/aws-role-arn": role + "2", "lanyard.dev/aws-region": "eu-central-1"}, {"lanyard.dev/audience": "vault"},
		{"lanyard.dev/azure-client-id": "00000000-0000-0000-0000-000000000001", "lanyard.dev/azure-tenant-id": "a.example"}, {"lanyard.dev/aws-region": "?"}, {},
	}
	variables = []corev1.EnvVar{
		{Name: "AWS_ACCESS_KEY_ID", Value: "x"}, {Name: "AWS_PROFILE", Value: "y"}, {Name: "AWS_ROLE_ARN", Value: role}, {Name: "AZURE_CLIENT_SECRET", Value: "z"}, {Name: "A", Value: "b"},
	}
	choices = []map[string]string{
		nil, nil, nil, {"lanyard.dev/inject": "false"}, {"lanyard.dev/containers": "nobody"}, {"lanyard.dev/skip-containers": "main-1"}, {"lanyard.dev/inject": "maybe"},
	}
	allowances = []string{"", "", "", annotations.AllowNothing, "*:role/app"}
)

// keysOfAWS is the name of a ConfigMap with AWS_ACCESS_KEY_ID.
const keysOfAWS = "keys"

// The times of a random cluster: its ServiceAccounts were created, annotated, and annotated again.
const (
	accountsCreated, firstAnnotated, annotatedAgain = 1000, 2000, 3000
	shortlyAfter, longAfter                         = annotatedAgain + 10, annotatedAgain + 1000
)

// randomCluster is the API server of a random cluster. Its objects have the times and the
// credentials that they would have if the webhook was reachable most of the time.
type randomCluster struct {
	settings     *annotations.Settings
	config       string
	registration *admissionregistrationv1.MutatingWebhookConfiguration
	namespaces   map[string]*metav1.ObjectMeta
	accounts     map[string]*metav1.ObjectMeta // by namespace/name
	pods         []randomPod
	mayCreate    bool
	objects      map[string]any // by their paths

	mu    sync.Mutex
	reads map[string]int // of a command, by URI
}

// randomPod is a running pod, and how users write its workload. template is the pod as it was sent
// to the API server.
type randomPod struct {
	corev1.Pod
	workload  string
	template  *corev1.Pod
	unchanged bool
}

func newRandomCluster(t *testing.T, r *rand.Rand) *randomCluster {
	t.Helper()
	c := &randomCluster{config: configs[r.IntN(len(configs))], namespaces: map[string]*metav1.ObjectMeta{}, accounts: map[string]*metav1.ObjectMeta{}, mayCreate: r.IntN(3) > 0, objects: map[string]any{}}
	var err error
	if c.settings, err = settings.Load([]byte(c.config), annotations.CommonAPIServerAudiences()); err != nil {
		t.Fatal(err)
	}
	c.registration = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "lanyard"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: cluster.PodWebhook, NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: annotations.Inject, Operator: metav1.LabelSelectorOpNotIn, Values: []string{annotations.LabelDisabled, annotations.OptOut}},
		}},
	}}}
	if r.IntN(3) == 0 {
		c.registration.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	}
	c.objects["/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/lanyard"] = c.registration
	for _, name := range []string{"left-out", "shop", "staging"} {
		c.namespace(t, r, name)
	}
	return c
}

// namespace adds a Namespace with its objects.
func (c *randomCluster) namespace(t *testing.T, r *rand.Rand, name string) {
	t.Helper()
	meta := &metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	if name == "left-out" {
		meta.Labels[annotations.Inject] = annotations.LabelDisabled
	}
	if policy := allowances[r.IntN(len(allowances))]; policy != "" {
		meta.Annotations[annotations.AllowedIdentities] = policy
	}
	c.namespaces[name], c.objects["/api/v1/namespaces/"+name] = meta, &corev1.Namespace{ObjectMeta: *meta}
	path := "/api/v1/namespaces/" + name
	c.objects[path+"/configmaps/"+keysOfAWS] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: keysOfAWS}, Data: map[string]string{"AWS_ACCESS_KEY_ID": "x"}}
	for _, account := range []string{"app", "db"} {
		before, after := randomValues(r), randomValues(r)
		if r.IntN(2) == 0 {
			after = before
		}
		meta := &metav1.ObjectMeta{Namespace: name, Name: account, Annotations: after, Labels: map[string]string{annotations.IdentityLabel: "enabled"}, CreationTimestamp: metav1.Unix(accountsCreated, 0)}
		annotated := firstAnnotated
		if !maps.Equal(before, after) {
			annotated = annotatedAgain
		}
		fields := map[string]any{}
		for key := range after {
			fields["f:"+key] = map[string]any{}
		}
		meta.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: time.Unix(int64(annotated), 0)}, FieldsV1: metav1.NewFieldsV1(string(encode(t, map[string]any{"f:metadata": map[string]any{"f:annotations": fields}})))}}
		if r.IntN(2) == 0 { // as of some API servers
			meta.ManagedFields = nil
		}
		c.accounts[name+"/"+account], c.objects[path+"/serviceaccounts/"+account] = meta, &corev1.ServiceAccount{ObjectMeta: *meta}
		for _, owner := range [][]string{{"Deployment", "ReplicaSet"}, {"StatefulSet"}, {"DaemonSet"}, {"Job"}, {"CronJob", "Job"}, {}} {
			if r.IntN(3) == 0 || len(owner) == 0 {
				c.workload(t, r, meta, before, owner)
			}
		}
	}
}

func randomValues(r *rand.Rand) map[string]string {
	values := map[string]string{}
	for range 1 + r.IntN(2) {
		maps.Copy(values, keys[r.IntN(len(keys))])
	}
	return values
}

// randomTemplate returns a random pod of a ServiceAccount, which is alone without an owner.
func randomTemplate(t *testing.T, r *rand.Rand, account *metav1.ObjectMeta, isAlone bool) *corev1.Pod {
	t.Helper()
	pod := new(corev1.Pod)
	if err := convert(randpod.New(r), pod); err != nil {
		t.Fatal(err)
	}
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: account.Namespace, Annotations: maps.Clone(choices[r.IntN(len(choices))]), Labels: map[string]string{}}
	pod.Spec.ServiceAccountName = account.Name
	// The last variable is a role that the pod sets itself, which looks like an earlier role of the
	// ServiceAccount. Without an owner's template, only the times tell them apart.
	if r.IntN(4) == 0 || isAlone && r.IntN(3) > 0 {
		pod.Annotations, pod.Spec.InitContainers, pod.Spec.Containers = nil, nil, pod.Spec.Containers[:1]
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_ROLE_ARN", Value: role + "3"}}
		return pod
	}
	if r.IntN(4) == 0 {
		pod.Labels["tier"] = "batch"
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if r.IntN(2) == 0 {
			container.Env = append(container.Env, variables[r.IntN(len(variables))])
		}
		if r.IntN(4) == 0 {
			name := []string{keysOfAWS, "absent"}[r.IntN(2)]
			container.EnvFrom = append(container.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
		}
	}
	return pod
}

// workload adds a workload of a ServiceAccount, which had other annotations before. kinds are the
// kinds of its owners, from the top.
func (c *randomCluster) workload(t *testing.T, r *rand.Rand, account *metav1.ObjectMeta, before map[string]string, kinds []string) {
	t.Helper()
	p := randomPod{template: randomTemplate(t, r, account, len(kinds) == 0)}
	name := account.Name + "-" + strings.ToLower(strings.Join(kinds, "-"))
	var owners []metav1.OwnerReference
	for _, each := range kinds {
		kind, _ := cluster.ByName(each)
		meta := metav1.ObjectMeta{Namespace: account.Namespace, Name: name, UID: types.UID(account.Namespace + each + name), OwnerReferences: owners}
		var template any = map[string]any{"template": p.template}
		if each == "CronJob" {
			template = map[string]any{"jobTemplate": map[string]any{"spec": template}}
		}
		c.objects["/apis/"+kind.Resource.Group+"/v1/namespaces/"+account.Namespace+"/"+kind.Resource.Resource+"/"+name] = map[string]any{
			"kind": each, "apiVersion": kind.Resource.Group + "/v1", "metadata": meta, "spec": template,
		}
		if p.workload == "" {
			p.workload = kind.Name(name)
		}
		owners = []metav1.OwnerReference{{APIVersion: kind.Resource.Group + "/v1", Kind: each, Name: name, UID: meta.UID, Controller: new(true)}}
	}
	for i, created := range []int64{firstAnnotated + 500, shortlyAfter, longAfter} {
		if r.IntN(2) == 0 { // a replica is missing
			continue
		}
		at := &metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name, Annotations: before}
		if created == longAfter {
			at = account
		}
		pod := p.template.DeepCopy()
		pod.Name, pod.OwnerReferences, pod.CreationTimestamp = fmt.Sprintf("%s-%d", name, i), owners, metav1.Unix(created, 0)
		if r.IntN(5) > 0 && c.called(account.Namespace, pod.Labels) { // the webhook was reached
			text := encode(t, pod)
			decision, err := c.decide(account.Namespace, at, text)
			if err != nil { // no such pod exists
				continue
			}
			if text, err = decision.Apply(text); err != nil {
				t.Fatal(err)
			}
			pod = new(corev1.Pod)
			if err := json.Unmarshal(text, pod); err != nil {
				t.Fatal(err)
			}
		}
		pod.Status.Phase = corev1.PodRunning
		running := p
		running.Pod, running.unchanged = *pod, cluster.IsUnchanged(pod, cluster.UnchangedSince(account))
		if len(kinds) == 0 {
			running.workload = "pod/" + pod.Name
		}
		c.pods = append(c.pods, running)
		c.objects["/api/v1/namespaces/"+account.Namespace+"/pods/"+pod.Name] = pod
	}
}

// account returns the ServiceAccount of a pod.
func (c *randomCluster) account(p *randomPod) *metav1.ObjectMeta {
	return c.accounts[p.Namespace+"/"+p.Spec.ServiceAccountName]
}

// convert encodes a value and decodes it into another one.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// ServeHTTP implements http.Handler.
func (c *randomCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		c.mu.Lock()
		c.reads[r.URL.RequestURI()]++
		c.mu.Unlock()
	}
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		reply(w, fmt.Sprintf(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":%t}}`, c.mayCreate))
	case r.Method == http.MethodPost:
		c.dryRun(w, r)
	case path == "/api":
		reply(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case path == "/apis":
		reply(w, `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]},{"name":"batch","versions":[{"groupVersion":"batch/v1","version":"v1"}]}]}`)
	case slices.Contains([]string{"/api/v1", "/apis/apps/v1", "/apis/batch/v1"}, path):
		reply(w, resourcesOf(strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")))
	case c.objects[path] != nil:
		c.reply(w, c.objects[path])
	default:
		c.list(w, r)
	}
}

// resourcesOf returns the resources of a group for discovery.
func resourcesOf(group string) string {
	resources := []string{}
	for _, kind := range append(cluster.Kinds(), cluster.Kind{Kind: "ServiceAccount", Resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts")}) {
		if kind.Resource.GroupVersion().String() == group {
			resources = append(resources, fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":true,"singularName":%q,"verbs":["get","list"]}`, kind.Resource.Resource, kind.Kind, strings.ToLower(kind.Kind)))
		}
	}
	return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[%s]}`, group, strings.Join(resources, ","))
}

func (c *randomCluster) reply(w http.ResponseWriter, object any) {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // objects of the API can be encoded
	}
	reply(w, string(text))
}

// list replies with the objects of a list: of one namespace, or of all.
func (c *randomCluster) list(w http.ResponseWriter, r *http.Request) {
	at := strings.LastIndex(r.URL.Path, "/")
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(c.objects)) {
		parent := path[:strings.LastIndex(path, "/")]
		_, ofNamespace, _ := strings.Cut(parent, "/namespaces/")
		_, resource, isIn := strings.Cut(ofNamespace, "/")
		if parent == r.URL.Path || isIn && strings.HasPrefix(parent, r.URL.Path[:at]+"/namespaces/") && resource == r.URL.Path[at+1:] {
			items = append(items, c.objects[path])
		}
	}
	list := map[string]any{"metadata": map[string]any{}, "items": items} // of the type that the client expects
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	c.reply(w, list)
}

// dryRun replies with a new pod.
func (c *randomCluster) dryRun(w http.ResponseWriter, r *http.Request) {
	pod, namespace := new(corev1.Pod), strings.Split(r.URL.Path, "/")[4]
	err := json.NewDecoder(r.Body).Decode(pod)
	text, errText := json.Marshal(pod)
	if err == nil && errText == nil && c.called(namespace, pod.Labels) {
		decision, errDecision := c.decide(namespace, c.accounts[namespace+"/"+pod.Spec.ServiceAccountName], text)
		if err = errDecision; err == nil {
			text, err = decision.Apply(text)
		}
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		c.reply(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: fmt.Sprintf("admission webhook %q denied the request: lanyard: %v", cluster.PodWebhook, err)})
		return
	}
	reply(w, string(text))
}
