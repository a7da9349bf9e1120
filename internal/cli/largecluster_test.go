// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// largeCluster is the API server of a large cluster, with canned responses. The load tests of
// "lanyard status" run it in fake time, and so does its benchmark, in real time. Its pods have
// the credentials that the webhook's own rules give them, and its dry runs use the same rules.
type largeCluster struct {
	// namespaces is the number of namespaces, serviceAccounts and podsEach are the numbers in
	// each. Each pod belongs to a StatefulSet.
	namespaces, serviceAccounts, podsEach int
	// variables is the number of environment variables of each pod: real ones have about 30.
	variables int
	// stale is the number of ServiceAccounts whose role changed after their pods were
	// created, in the first namespace.
	stale int

	settings *annotations.Settings
	// accounts are the ServiceAccounts by namespace/name.
	accounts map[string]*annotations.Object
	pods     []string

	mu       sync.Mutex
	requests []request
	dryRuns  int
	// atOnce is the highest number of dry runs at the same time.
	atOnce int
}

// request is a request that the cluster has served.
type request struct {
	method, path string
	at           time.Time
}

const (
	role = "arn:aws:iam::111122223333:role/app"
	// placeholder stands for the namespace in pods that are made once for all namespaces.
	placeholder = "placeholder"
	service     = "/api/v1/namespaces/lanyard/services/webhook"
)

// start makes the pods of the cluster, and returns its API server.
func (c *largeCluster) start(t testing.TB) http.Handler {
	t.Helper()
	s, err := options.New().Settings(annotations.CommonAPIServerAudiences())
	if err != nil {
		t.Fatal(err)
	}
	c.settings, c.accounts = s, map[string]*annotations.Object{}
	for i := range c.serviceAccounts {
		account := serviceAccount(i, role)
		c.add(placeholder, &account)
		if i < c.stale {
			account = serviceAccount(i, role+"-new")
		}
		c.add(namespace(0), &account)
	}
	for i := range c.podsEach {
		text, err := c.inject(placeholder, c.pod(i))
		if err != nil {
			t.Fatal(err)
		}
		c.pods = append(c.pods, string(text))
	}
	return c.handler()
}

// served returns how many requests were served with a method, and the highest number of
// requests in one second.
func (c *largeCluster) served(method string) (count, perSecond int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := 0
	for i := range c.requests {
		if c.requests[i].method == method {
			count++
		}
		for c.requests[i].at.Sub(c.requests[first].at) >= time.Second {
			first++
		}
		perSecond = max(perSecond, i-first+1)
	}
	return count, perSecond
}

// dryRunsServed returns how many dry runs of pods were served, and how many at once.
func (c *largeCluster) dryRunsServed() (count, atOnce int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.method == http.MethodPost && strings.HasSuffix(r.path, "/pods") {
			count++
		}
	}
	return count, c.atOnce
}

func (c *largeCluster) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"kind":"MutatingWebhookConfigurationList","apiVersion":"admissionregistration.k8s.io/v1","items":[{"metadata":{"name":"lanyard"},
			"webhooks":[{"name":"pods.lanyard.dev","clientConfig":{"service":{"namespace":"lanyard","name":"webhook"}}}]}]}`)
	})
	mux.HandleFunc("GET "+service, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"kind":"Service","apiVersion":"v1","metadata":{"namespace":"lanyard","name":"webhook"},"spec":{"selector":{"app":"webhook"}}}`)
	})
	mux.HandleFunc("GET /apis/apps/v1/namespaces/lanyard/deployments", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"kind":"DeploymentList","apiVersion":"apps/v1","items":[{"metadata":{"namespace":"lanyard","name":"webhook"},
			"spec":{"template":{"metadata":{"labels":{"app":"webhook"}},"spec":{"containers":[{"name":"webhook"}]}}}}]}`)
	})
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, _ *http.Request) {
		items := make([]string, c.namespaces)
		for i := range items {
			items[i] = `{"metadata":{"name":"` + namespace(i) + `"}}`
		}
		reply(w, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{},"items":[`+strings.Join(items, ",")+`]}`)
	})
	mux.HandleFunc("GET /api/v1/serviceaccounts", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "ServiceAccount", c.namespaces*c.serviceAccounts, func(i int) string {
			account := serviceAccount(i%c.serviceAccounts, role)
			if i < c.stale {
				account = serviceAccount(i, role+"-new")
			}
			account.Namespace = namespace(i / c.serviceAccounts)
			return metadataOf(account)
		})
	})
	mux.HandleFunc("GET /apis/apps/v1/namespaces/{namespace}/statefulsets", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "StatefulSet", c.podsEach, func(i int) string {
			return metadataOf(metav1.ObjectMeta{Namespace: r.PathValue("namespace"), Name: set(i), UID: types.UID(set(i))})
		})
	})
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "Pod", c.podsEach, func(i int) string { return strings.ReplaceAll(c.pods[i], placeholder, r.PathValue("namespace")) })
	})
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, "Pod", c.namespaces*c.podsEach, func(i int) string {
			return strings.ReplaceAll(c.pods[i%c.podsEach], placeholder, namespace(i/c.podsEach))
		})
	})
	for _, kind := range cluster.Kinds() {
		path, n := "/apis/"+kind.Resource.Group+"/v1/", 0
		if kind.Resource.Group == "" {
			path = "/api/v1/"
		}
		switch kind.Kind {
		case "Pod":
			continue
		case "StatefulSet":
			n = c.namespaces * c.podsEach
		}
		mux.HandleFunc("GET "+path+kind.Resource.Resource, func(w http.ResponseWriter, r *http.Request) {
			page(w, r, kind.Kind, n, func(i int) string {
				return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q},"spec":{"template":%s}}`, namespace(i/c.podsEach), set(i%c.podsEach), c.pods[i%c.podsEach])
			})
		})
	}
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, metadataOf(metav1.ObjectMeta{Name: r.PathValue("namespace")}))
	})
	mux.HandleFunc("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) { page(w, r, "ConfigMap", 0, nil) })
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":true}}`)
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/pods", c.dryRun)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.requests = append(c.requests, request{r.Method, r.URL.Path, time.Now()})
		c.mu.Unlock()
		mux.ServeHTTP(w, r)
	})
}

// dryRun replies with the pod of a request, with its credentials.
func (c *largeCluster) dryRun(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.dryRuns++
	c.atOnce = max(c.atOnce, c.dryRuns)
	c.mu.Unlock()
	time.Sleep(time.Millisecond) // the others start meanwhile
	pod := &unstructured.Unstructured{}
	err := json.NewDecoder(r.Body).Decode(&pod.Object)
	if err == nil {
		var text []byte
		if text, err = c.inject(r.PathValue("namespace"), pod); err == nil {
			reply(w, string(text))
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	c.mu.Lock()
	c.dryRuns--
	c.mu.Unlock()
}

// inject returns a pod as the webhook changes it.
func (c *largeCluster) inject(namespace string, pod *unstructured.Unstructured) ([]byte, error) {
	text, err := json.Marshal(pod.Object)
	if err != nil {
		return nil, err
	}
	name, _, err := unstructured.NestedString(pod.Object, "spec", "serviceAccountName")
	if err != nil {
		return nil, err
	}
	read, err := mutate.ReadPod(text, c.settings)
	if err != nil {
		return nil, err
	}
	decision, err := mutate.Decide(c.settings, c.accounts[namespace+"/"+name], nil, read)
	if err != nil {
		return nil, err
	}
	return decision.Apply(text)
}

// add adds a ServiceAccount to a namespace.
func (c *largeCluster) add(namespace string, meta *metav1.ObjectMeta) {
	account := annotations.ServiceAccountObject(meta)
	account.Namespace = namespace
	c.accounts[namespace+"/"+meta.Name] = account
}

func namespace(i int) string { return fmt.Sprintf("namespace-%03d", i) }

func set(i int) string { return fmt.Sprintf("set-%d", i) }

func serviceAccount(i int, role string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        fmt.Sprintf("account-%03d", i),
		Annotations: map[string]string{"lanyard.dev/aws-role-arn": role},
		Labels:      map[string]string{"lanyard.dev/identity": "enabled"},
	}
}

// pod returns a pod before the webhook changes it.
func (c *largeCluster) pod(i int) *unstructured.Unstructured {
	pod := probe.Pod(serviceAccount(i%c.serviceAccounts, "").Name)
	pod.SetLabels(nil)
	pod.SetName(fmt.Sprintf("%s-0", set(i)))
	pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set(i), UID: types.UID(set(i)), Controller: new(true)}})
	var env []any
	for n := range c.variables {
		env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", n), "value": "a value of about the usual length"})
	}
	containers := pod.Object["spec"].(map[string]any)["containers"].([]any)
	containers[0].(map[string]any)["env"] = env
	pod.Object["status"] = map[string]any{"phase": "Running"}
	return pod
}

// page replies with a part of a list of n objects: their metadata, if the request asks for that.
func page(w http.ResponseWriter, r *http.Request, kind string, n int, object func(int) string) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = n
	}
	from, err := strconv.Atoi(r.URL.Query().Get("continue"))
	if err != nil {
		from = 0
	}
	version, next := "v1", ""
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		version, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	if from+limit < n {
		next = strconv.Itoa(from + limit)
	}
	var items []string
	for i := from; i < min(n, from+limit); i++ {
		items = append(items, object(i))
	}
	reply(w, fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"continue":%q},"items":[%s]}`, kind, version, next, strings.Join(items, ",")))
}

// metadataOf returns an object that has only metadata.
func metadataOf(meta metav1.ObjectMeta) string {
	text, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: meta})
	if err != nil {
		panic(err) // metadata can be encoded
	}
	return string(text)
}

func reply(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text) //nolint:gosec // JSON, for a test; a client that goes away needs no reply
}
