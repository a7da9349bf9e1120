// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/migrate"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/golden"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

var update = flag.Bool("update", false, "write the golden files")

func newSettings(t *testing.T) *annotations.Settings {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// peersNamed returns peers in the order of their precedence.
func peersNamed(t *testing.T, names ...string) []*peer.Peer {
	t.Helper()
	peers, err := peer.Named(names)
	if err != nil {
		t.Fatal(err)
	}
	return peers
}

// read reads manifests, by their names.
func read(t *testing.T, files map[string]string) (stock []*migrate.Object) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		objects, err := migrate.ReadManifest(name, strings.NewReader(files[name]))
		if err != nil {
			t.Fatal(err)
		}
		stock = append(stock, objects...)
	}
	return stock
}

// planOf plans for manifests, and makes the changes in the stock.
func planOf(t *testing.T, stock []*migrate.Object, remove bool, names ...string) *migrate.Plan {
	t.Helper()
	plan := migrate.New(stock, &migrate.Options{Settings: newSettings(t), From: peersNamed(t, names...), Remove: remove, Namespace: "default"})
	for _, c := range plan.Changes {
		c.Object.Annotations = apply(c.Object.Annotations, peer.Adoption{Set: c.Set, Remove: c.Remove})
	}
	return plan
}

// testdata returns the manifests of a peer: the texts whose heading is the name of a file.
func testdata(t testing.TB, name string) map[string]string {
	t.Helper()
	texts, err := golden.Read(fileOf(name))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, text := range texts {
		if filepath.Ext(text.Heading) != "" {
			files[text.Heading] = text.Body
		}
	}
	return files
}

// fileOf returns the path of a peer's golden file, which contains its manifests and the results.
func fileOf(peer string) string { return filepath.Join("testdata", peer+".txt") }

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, name := range peer.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stock := read(t, testdata(t, name))
			plan := planOf(t, stock, false, name)
			text, err := yaml.Marshal(plan)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, fileOf(name), "the plan", string(text), *update)
			if again := planOf(t, stock, false, name); len(again.Changes) > 0 || again.Count(peer.Translated) > 0 {
				t.Errorf("a second migration changes something: %+v", again.Items)
			}
			removed := ""
			for _, c := range planOf(t, stock, true, name).Changes {
				removed += fmt.Sprintf("%s/%s: %s\n", c.Object.Namespace, c.Object.Name, c.String())
			}
			golden.Compare(t, fileOf(name), "what --remove removes", removed, *update)
		})
	}
}

// A plan must contain everything that a peer reads, but nothing of its program that may
// be a secret.
func TestThePlanHasEveryKey(t *testing.T) {
	t.Parallel()
	for _, name := range peer.Names() {
		stock := read(t, testdata(t, name))
		plan := migrate.New(stock, &migrate.Options{Settings: newSettings(t), From: peersNamed(t, name), Namespace: "default"})
		text, err := yaml.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "must-not-be-shown") {
			t.Errorf("%s: the plan has a variable of the program", name)
		}
		for _, o := range stock {
			keys := slices.Concat(slices.Collect(maps.Keys(o.Annotations)), slices.Collect(maps.Keys(o.Labels)))
			if o.Pod != nil {
				keys = slices.Concat(keys, slices.Collect(maps.Keys(o.Pod.Annotations)), slices.Collect(maps.Keys(o.Pod.Labels)))
			}
			for _, key := range keys {
				// The webhook wrote all but this key of the pod.
				written := o.Name == "injected" && key != "cloud.google.com/skip-containers"
				unrelated := written || !strings.Contains(key, "/") || slices.Contains([]string{"prometheus.io/scrape", "eks.amazonaws.com/component", "cloud.google.com/neg"}, key) || strings.HasPrefix(key, "lanyard.dev/")
				has := slices.ContainsFunc(plan.Items, func(item migrate.Item) bool {
					return item.Object == o.Reference() && strings.Contains(item.Found, key)
				})
				if has == unrelated {
					t.Errorf("%s: %s: %s: in the plan: %t, want %t", name, o.Reference(), key, has, !unrelated)
				}
			}
		}
	}
}

// The webhook and migrate must translate all annotations alike, in whichever order they run.
func TestMigrateAgreesWithAdoption(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	names := []string{"eks", "azure", "gcp", "gke"}
	adoptable, err := peer.Named(names)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	checked := 0
	for range 3000 {
		has := randomAnnotations(random, adoptable, s)
		adopted := apply(has, peer.Adopt(s, adoptable, has))
		plan, after := migrated(t, has, names)
		got := after
		delete(adopted, annotations.Adopted)
		if denied(s, adopted) {
			if !maps.Equal(has, after) {
				t.Fatalf("%v: changes to %v, which is denied", has, after)
			}
			continue
		}
		if diff := gocmp.Diff(adopted, got); diff != "" {
			t.Fatalf("%v: adoption and migration differ (-adopted +migrated):\n%s", has, diff)
		}
		if again := peer.Adopt(s, adoptable, after); len(again.Set)+len(again.Remove) > 0 {
			t.Fatalf("%v: adoption changes what was migrated: %+v", has, again)
		}
		adopting := *s
		adopting.Peers = names
		_, after = migratedWith(t, &adopting, has, names)
		again := peer.Adopt(s, adoptable, after)
		delete(again.Set, annotations.Adopted)
		if again.Remove = slices.DeleteFunc(again.Remove, func(key string) bool { return key == annotations.Adopted }); len(again.Set)+len(again.Remove) > 0 {
			t.Fatalf("%v: adoption changes what was migrated beside it: %+v", has, again)
		}
		if len(plan.Changes) > 0 {
			checked++
		}
	}
	if checked < 1000 {
		t.Errorf("got %d ServiceAccounts that change, want most of 3000", checked)
	}
}

// A ServiceAccount that was adopted belongs to its owner afterwards.
func TestMigrateTakesOverWhatWasAdopted(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	adoptable, err := peer.Named([]string{"eks", "azure"})
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/a", "azure.workload.identity/client-id": "00000000-1111-2222-3333-444444444444"}
	adopted := apply(has, peer.Adopt(s, adoptable, has))
	_, after := migrated(t, adopted, []string{"eks"})
	if record := after[annotations.Adopted]; strings.Contains(record, "aws-") || !strings.Contains(record, "azure-client-id") {
		t.Errorf("got the record %q, want that of azure alone", record)
	}
	plan, after := migrated(t, adopted, []string{"eks", "azure"})
	if plan.Count(peer.Translated) != 1 || !slices.ContainsFunc(plan.Items, func(item migrate.Item) bool { return item.Found == annotations.Adopted }) {
		t.Errorf("got %+v, want that the record is removed, and nothing else", plan.Items)
	}
	if record, found := after[annotations.Adopted]; found {
		t.Errorf("got the record %q, want none", record)
	}
	delete(after, "eks.amazonaws.com/role-arn")
	if a := peer.Adopt(s, adoptable, after); len(a.Remove) > 0 {
		t.Errorf("without the peer's annotation, adoption removes %v", a.Remove)
	}
}

// Before the other webhook is removed, the roles of its ConfigMap must be written to the
// ServiceAccounts, and the others must still follow their annotations.
func TestWhileThePeerIsAdoptedMigrateWritesTheRest(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Peers = []string{"eks", "azure"}
	has := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/a", "azure.workload.identity/client-id": "00000000-1111-2222-3333-444444444444"}
	adopted := apply(has, peer.Adopt(s, peer.Of(s), has))
	stock := []*migrate.Object{
		eksIn("kube-system"),
		{Kind: "ConfigMap", Namespace: "kube-system", Name: "pod-identity-webhook", Data: map[string]string{
			"config": `{"a/exact": {"RoleARN": "arn:aws:iam::111122223333:role/exact"}, "*/any": {"RoleARN": "arn:aws:iam::111122223333:role/any"}}`,
		}},
		{Kind: "ServiceAccount", Namespace: "a", Name: "adopted", Annotations: adopted},
		{Kind: "ServiceAccount", Namespace: "a", Name: "new", Annotations: has},
		{Kind: "ServiceAccount", Namespace: "a", Name: "exact"},
		{Kind: "ServiceAccount", Namespace: "b", Name: "any"},
	}
	plan := migrate.New(stock, &migrate.Options{Settings: s, From: peersNamed(t, "eks", "azure"), Cluster: true})
	got := map[string]map[string]string{}
	for _, c := range plan.Changes {
		if len(c.Remove) > 0 {
			t.Errorf("removes %v from %s", c.Remove, c.Object.Name)
		}
		got[c.Object.Name] = apply(c.Object.Annotations, peer.Adoption{Set: c.Set})
	}
	mapped := func(name string) map[string]string {
		return map[string]string{
			"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/" + name, "lanyard.dev/token-expiration-seconds": "86400",
			"lanyard.dev/aws-token-path": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
		}
	}
	want := map[string]map[string]string{"exact": mapped("exact"), "any": mapped("any"), "new": adopted}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the changed ServiceAccounts (-want +got):\n%s", diff)
	}
}

// eksIn returns the webhook configuration of EKS's program in the namespace.
func eksIn(namespace string) *migrate.Object {
	return &migrate.Object{Kind: "MutatingWebhookConfiguration", Name: "pod-identity-webhook", Registration: peer.Registration{Name: "pod-identity-webhook", Namespaces: []string{namespace}}}
}

// Users who can write to one namespace can create objects there that look like a peer's.
func TestOnlyTheNamespaceOfThePeerConfiguresOthers(t *testing.T) {
	t.Parallel()
	evil := func(name, image string, data map[string]string, args ...string) []*migrate.Object {
		pod := &migrate.Pod{}
		pod.Containers = []migrate.Container{{Image: image, Args: args}}
		return []*migrate.Object{{Kind: "ConfigMap", Namespace: "evil", Name: name, Data: data}, {Kind: "Deployment", Namespace: "evil", Name: "webhook", Pod: pod}}
	}
	stock := slices.Concat(
		evil("pod-identity-webhook", "amazon-eks-pod-identity-webhook", map[string]string{"config": `{
			"shop/app": {"RoleARN": "arn:aws:iam::666666666666:role/evil"},
			"*/default": {"RoleARN": "arn:aws:iam::666666666666:role/evil"},
			"evil/new": {"RoleARN": "arn:aws:iam::666666666666:role/evil"},
			"evil/own": {"RoleARN": "arn:aws:iam::666666666666:role/evil"}}`}, "--token-audience=evil", "--compose-role-arn"),
		evil("azure-wi-webhook-config", "azure-workload-identity-webhook", map[string]string{"AZURE_TENANT_ID": "66666666-6666-6666-6666-666666666666"}),
		[]*migrate.Object{
			eksIn("kube-system"),
			{Kind: "ServiceAccount", Namespace: "shop", Name: "app"},
			{Kind: "ServiceAccount", Namespace: "shop", Name: "default"},
			{Kind: "ServiceAccount", Namespace: "evil", Name: "own"},
			{Kind: "ServiceAccount", Namespace: "shop", Name: "azure", Annotations: map[string]string{"azure.workload.identity/client-id": "00000000-1111-2222-3333-444444444444"}},
		})
	plan := migrate.New(stock, &migrate.Options{Settings: newSettings(t), From: peersNamed(t, "eks", "azure"), Cluster: true})
	if len(plan.Config) > 0 {
		t.Errorf("got the settings %v, want none", plan.Config)
	}
	for _, c := range plan.Changes {
		if c.Object.Namespace != "evil" && (c.Object.Name != "azure" || c.Set["lanyard.dev/azure-tenant-id"] != "") {
			t.Errorf("changes %s/%s: %v", c.Object.Namespace, c.Object.Name, c.Set)
		}
	}
	const want = "Nothing was changed, because no webhook configuration of amazon-eks-pod-identity-webhook names a Service in the namespace evil. " +
		"Annotate the ServiceAccount if the object belongs to the program."
	for _, name := range []string{"shop/app", "*/default", "evil/new"} {
		if !slices.ContainsFunc(plan.Items, func(item migrate.Item) bool {
			return item.Found == name && item.Result == peer.Manual && item.Why == want
		}) {
			t.Errorf("%s: got %+v, want it by hand: %s", name, plan.Items, want)
		}
	}
	// Users who can write the ConfigMap can annotate this one anyway.
	if !slices.ContainsFunc(plan.Changes, func(c migrate.Change) bool { return c.Object.Name == "own" }) {
		t.Error("does not change the ServiceAccount in the namespace of the ConfigMap")
	}
}

// The peer's annotations were removed after --adopt, but before migrate.
func TestMigrateRemovesNothingThatWasAdopted(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	adoptable, err := peer.Named([]string{"eks"})
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/a"}
	adopted := apply(has, peer.Adopt(s, adoptable, has))
	delete(adopted, "eks.amazonaws.com/role-arn")
	_, after := migrated(t, adopted, []string{"eks"})
	delete(adopted, annotations.Adopted)
	if diff := gocmp.Diff(adopted, after); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// denied reports whether the webhook denies the annotations in every cluster.
func denied(s *annotations.Settings, values map[string]string) bool {
	_, errs := s.ParseServiceAccount("a", "b", values)
	return slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Type != field.ErrorTypeRequired })
}

// migrated returns the annotations of a ServiceAccount after a migration.
func migrated(t *testing.T, has map[string]string, names []string) (*migrate.Plan, map[string]string) {
	t.Helper()
	return migratedWith(t, newSettings(t), has, names)
}

func migratedWith(t *testing.T, s *annotations.Settings, has map[string]string, names []string) (*migrate.Plan, map[string]string) {
	t.Helper()
	account := &migrate.Object{Kind: "ServiceAccount", Namespace: "a", Name: "b", Annotations: has}
	plan := migrate.New([]*migrate.Object{account}, &migrate.Options{Settings: s, From: peersNamed(t, names...), Cluster: true})
	after := maps.Clone(has)
	for _, c := range plan.Changes {
		maps.Copy(after, c.Set)
		for _, key := range c.Remove {
			delete(after, key)
		}
	}
	return plan, after
}

func apply(has map[string]string, a peer.Adoption) map[string]string {
	after := map[string]string{}
	maps.Copy(after, has)
	maps.Copy(after, a.Set)
	for _, key := range a.Remove {
		delete(after, key)
	}
	return after
}

// randomAnnotations returns annotations of the peers, and sometimes some of Lanyard.
func randomAnnotations(random *rand.Rand, peers []*peer.Peer, s *annotations.Settings) map[string]string {
	values := func(key string) string {
		switch {
		case random.IntN(8) == 0:
			return []string{"", "60", "soon", "999999"}[random.IntN(4)]
		case strings.HasSuffix(key, "role-arn"):
			return "arn:aws:iam::111122223333:role/" + string(rune('a'+random.IntN(3)))
		case strings.HasSuffix(key, "client-id"), strings.HasSuffix(key, "tenant-id"):
			return "00000000-1111-2222-3333-444444444444"
		case strings.HasSuffix(key, "email"), strings.HasSuffix(key, "service-account"):
			return "cart-reader@example-project.iam.gserviceaccount.com"
		case strings.HasSuffix(key, "workload-identity-provider"):
			return "projects/123456789/locations/global/workloadIdentityPools/pool/providers/cluster"
		case strings.Contains(key, "expiration"):
			return []string{"7200", "43200", "3600"}[random.IntN(3)]
		}
		return []string{"true", "false", "my-audience", "1"}[random.IntN(4)]
	}
	result := map[string]string{}
	for _, p := range peers {
		if random.IntN(3) == 0 {
			continue
		}
		for _, key := range p.Keys() {
			if random.IntN(3) > 0 {
				result[key] = values(key)
			}
		}
	}
	for _, key := range s.ServiceAccountKeys() {
		if random.IntN(40) == 0 {
			result[key] = values(key)
		}
	}
	return result
}

func TestPodTemplates(t *testing.T) {
	t.Parallel()
	const pod = `apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    %s
spec: {containers: [{name: a, image: a}, {name: b, image: b}]}
`
	for sentence, tt := range map[string]struct{ has, peer, want, by string }{
		"commas of EKS":                     {`eks.amazonaws.com/skip-containers: a,b`, "eks", "lanyard.dev/skip-containers=a,b", ""},
		"a space never matched with EKS":    {`eks.amazonaws.com/skip-containers: "a, b"`, "eks", "lanyard.dev/skip-containers=a", ""},
		"quotes of EKS":                     {`eks.amazonaws.com/skip-containers: '"a",b'`, "eks", "lanyard.dev/skip-containers=a,b", ""},
		"quotes that do not end":            {`eks.amazonaws.com/skip-containers: '"a,b'`, "eks", "", migrateNothing},
		"an empty list":                     {`eks.amazonaws.com/skip-containers: ""`, "eks", "", migrateNothing},
		"semicolons of Azure":               {`azure.workload.identity/skip-containers: "a; b;"`, "azure", "lanyard.dev/skip-containers=a,b", ""},
		"commas of Azure are no separator":  {`azure.workload.identity/skip-containers: "a,b"`, "azure", "", migrateNothing},
		"commas of Google":                  {`cloud.google.com/skip-containers: "a, b,gcloud-setup"`, "gcp", "lanyard.dev/skip-containers=a,b", ""},
		"a short lifetime of EKS":           {`eks.amazonaws.com/token-expiration: "0"`, "eks", `lanyard.dev/token-expiration-seconds=600`, ""},
		"a long lifetime of EKS":            {`eks.amazonaws.com/token-expiration: "90000"`, "eks", `lanyard.dev/token-expiration-seconds=86400`, ""},
		"a short lifetime of Google":        {`cloud.google.com/token-expiration: "600"`, "gcp", `lanyard.dev/token-expiration-seconds=3600`, ""},
		"a short lifetime of Azure":         {`azure.workload.identity/service-account-token-expiration: "600"`, "azure", "", string(peer.Manual)},
		"no lifetime of Azure":              {`azure.workload.identity/service-account-token-expiration: ""`, "azure", "", migrateNothing},
		"a word as the lifetime of Google":  {`cloud.google.com/token-expiration: soon`, "gcp", "", string(peer.Manual)},
		"another list of Lanyard":           {"eks.amazonaws.com/skip-containers: a\n    lanyard.dev/skip-containers: b", "eks", "", string(peer.Manual)},
		"the same list of Lanyard":          {"eks.amazonaws.com/skip-containers: a\n    lanyard.dev/skip-containers: a", "eks", "", migrateNothing},
		"a list of those that get it":       {"eks.amazonaws.com/skip-containers: a\n    lanyard.dev/containers: b", "eks", "", string(peer.Manual)},
		"the proxy of Azure":                {`azure.workload.identity/inject-proxy-sidecar: "true"`, "azure", "", string(peer.Unsupported)},
		"the proxy of Azure, even if false": {`azure.workload.identity/inject-proxy-sidecar: "false"`, "azure", "", string(peer.Unsupported)},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			plan := planOf(t, read(t, map[string]string{"pod.yaml": fmt.Sprintf(pod, tt.has)}), false, tt.peer)
			got := slices.DeleteFunc(plan.Items, func(item migrate.Item) bool { return item.Object != "pod/p" })
			if by := cmp.Or(tt.by, manual); len(got) != 1 || string(got[0].Result) != by {
				t.Fatalf("got %+v, want one with the result %s", got, by)
			}
			if tt.want != "" && (got[0].Becomes != tt.want || !strings.HasPrefix(got[0].Why, "A change would restart the pods")) {
				t.Errorf("got %+v, want %s, and where", got[0], tt.want)
			}
		})
	}
}

// A file of its own keeps a container from the credentials, with Lanyard as with the other webhook.
func TestFilesOfContainers(t *testing.T) {
	t.Parallel()
	const (
		serviceAccount = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: app, annotations: {%s}}\n"
		variable       = "env: [{name: AZURE_FEDERATED_TOKEN_FILE, value: /own/token}]"
		pod            = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {serviceAccountName: app, containers: [{name: %s, image: a, " + variable + "}]}\n"
		template       = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {serviceAccountName: app, containers: [{name: %s, image: a, " + variable + "}]}}}\n"
		asks           = "azure.workload.identity/client-id: 11112222-bbbb-3333-cccc-4444dddd5555"
		key            = "AZURE_FEDERATED_TOKEN_FILE in the container "
	)
	for sentence, tt := range map[string]struct {
		object, container string
		serviceAccount    string // its annotation, or "none"
		want              bool
	}{
		"a pod":                                    {pod, "app", asks, true},
		"a template":                               {template, "app", asks, true},
		"of a ServiceAccount that is not known":    {pod, "app", "none", true},
		"of a ServiceAccount of another cloud":     {pod, "app", "eks.amazonaws.com/role-arn: arn:aws:iam::111122223333:role/app", false},
		"a container that the other webhook added": {pod, "azwi-proxy", asks, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"object.yaml": fmt.Sprintf(tt.object, tt.container)}
			if tt.serviceAccount != "none" {
				files["serviceaccount.yaml"] = fmt.Sprintf(serviceAccount, tt.serviceAccount)
			}
			plan := planOf(t, read(t, files), false, "azure")
			got := slices.ContainsFunc(plan.Items, func(item migrate.Item) bool { return item.Found == key+tt.container })
			if got != tt.want {
				t.Errorf("got %+v, want the file %t", plan.Items, tt.want)
			}
		})
	}
}

const (
	migrateNothing = string(peer.NothingToDo)
	manual         = string(peer.Manual)
)

func TestManifestErrors(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := byte('b'); i < 'i'; i++ {
		bomb += string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+string(i-1)+",", 9) + "*" + string(i-1) + "]\n"
	}
	for sentence, tt := range map[string]struct{ text, want string }{
		"a template":               {"a: {{ .Values.x }}\nb: {{", "line"},
		"a key twice":              {"a: b\na: c\n", "already set in map"},
		"aliases for very much":    {bomb, "excessive aliasing"},
		"a text that is no YAML":   {"\x00", "control characters"},
		"brackets without an end":  {strings.Repeat("[", 20000), "exceeded max depth"},
		"an unknown anchor":        {"a: *x\n", "unknown anchor"},
		"a second document of it":  {"a: b\n---\na: [\n", "line"},
		"a mapping that is a list": {"a: b\n- c\n", "line"},
		"a pod of another form":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: x}\n", "pod/a: "},
	} {
		if objects, err := migrate.ReadManifest("a.yaml", strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %d objects and %v, want an error with %q", sentence, len(objects), err, tt.want)
		}
	}
	for _, text := range []string{"", "---\n", "a: b\n", "- a\n", "kind: X\n", "kind: Pod\n", "# comment\n", "null\n"} {
		if objects, err := migrate.ReadManifest("a.yaml", strings.NewReader(text)); err != nil || len(objects) > 0 {
			t.Errorf("%q: got %d objects and %v, want none", text, len(objects), err)
		}
	}
}

// Patches and the templates of most Jobs contain nothing else.
func TestPodsWithoutMetadataOrSpec(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: []}}}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 3}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: null\n",
	} {
		stock, err := migrate.ReadManifest("a.yaml", strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		planOf(t, stock, false, peer.Names()...)
	}
}

// FuzzManifest checks that every manifest has a plan, and that its changes need no others.
func FuzzManifest(f *testing.F) {
	for _, name := range peer.Names() {
		for _, text := range testdata(f, name) {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		stock, err := migrate.ReadManifest("x", bytes.NewReader(text))
		if err != nil || len(text) > 1<<13 {
			return
		}
		planOf(t, stock, false, peer.Names()...)
		if again := planOf(t, stock, false, peer.Names()...); len(again.Changes) > 0 {
			t.Fatalf("a second migration changes %+v", again.Changes)
		}
	})
}

// The program adds the variables to pods, so their templates do not show them.
func TestPodsOfEKSPodIdentity(t *testing.T) {
	t.Parallel()
	eks := &peers.EKS{ContainerCredentials: []string{"shop/cart", "shop/plain"}}
	var stock []*migrate.Object
	add := func(name, account string, owned bool) {
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		pod.Spec = corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main"}}}
		if owned {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", Controller: new(true)}}
		}
		if err := eks.Mutate(pod, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: account}}); err != nil {
			t.Fatal(err)
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			t.Fatal(err)
		}
		read, err := migrate.Read(&unstructured.Unstructured{Object: object})
		if err != nil || (read == nil) != (owned && account == "other") {
			t.Fatalf("%s: got %v and %v, want a pod that another object made only with an agent", name, read, err)
		}
		if read != nil {
			stock = append(stock, read)
		}
	}
	add("cart-1", "cart", true)
	add("cart-2", "cart", true)
	add("own", "plain", false)
	add("other-1", "other", true)
	stock = append(stock,
		&migrate.Object{Kind: "ConfigMap", Namespace: "shop", Name: "pod-identity-webhook", Data: map[string]string{"config": `{"shop/plain": {"RoleARN": "arn:aws:iam::111122223333:role/plain"}}`}},
		&migrate.Object{Kind: "ServiceAccount", Namespace: "shop", Name: "cart", Annotations: map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/cart"}},
		&migrate.Object{Kind: "ServiceAccount", Namespace: "shop", Name: "plain"},
		&migrate.Object{Kind: "ServiceAccount", Namespace: "shop", Name: "other"},
	)
	plan := migrate.New(stock, &migrate.Options{Settings: newSettings(t), From: peersNamed(t, "eks"), Cluster: true})
	if len(plan.Changes) > 0 {
		t.Errorf("got %+v, want no change: the pods would get a second role", plan.Changes)
	}
	got := ""
	for _, item := range plan.Items {
		got += fmt.Sprintf("%s: %s: %s: %s\n", item.Object, item.Found, item.Result, item.Why)
	}
	note := "They use EKS Pod Identity, which Lanyard does not replace: keep the program. To switch them, create a role that trusts the cluster's issuer, annotate the ServiceAccount, and delete the association."
	want := "configmap/pod-identity-webhook: shop/plain: by hand: Nothing was changed, because its pods get their credentials from an agent on the node.\n" +
		"serviceaccount/cart: eks.amazonaws.com/role-arn: by hand: Nothing was changed, because its pods get their credentials from an agent on the node.\n" +
		"serviceaccount/cart: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE in its pods: not supported: Pods: 2, such as cart-1. " + note + " New pods get the role of the ServiceAccount from Lanyard in addition, and SDKs prefer it.\n" +
		"serviceaccount/plain: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE in its pods: not supported: Pods: 1, such as own. " + note + " New pods get the role of the ServiceAccount from Lanyard in addition, and SDKs prefer it.\n"
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

// The table must name annotations and flags that Lanyard has.
func TestTheTableNamesExistingAnnotationsAndSettings(t *testing.T) {
	t.Parallel()
	sets := options.New().Flags()
	isFlag := func(name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(sets.FlagSets)), func(fs *pflag.FlagSet) bool { return fs.Lookup(name) != nil })
	}
	s := newSettings(t)
	known := slices.Concat(s.ServiceAccountKeys(), s.PodKeys())
	for _, p := range peer.All() {
		for _, in := range p.Inputs {
			switch name := in.SettingOf(); {
			case in.Becomes == "":
			case name != "" && !isFlag(name):
				t.Errorf("%s: %s: becomes %s, and the webhook has no flag --%s", p.Name, in.Key, in.Becomes, name)
			case name == "" && !slices.Contains(known, annotations.Prefix+in.Becomes):
				t.Errorf("%s: %s: becomes %s, which is no annotation of Lanyard", p.Name, in.Key, in.Becomes)
			}
		}
	}
}
