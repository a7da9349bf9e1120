// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// eachValueSet runs a check for every value set.
func eachValueSet(t *testing.T, check func(t *testing.T, in install, r *rendering)) {
	t.Helper()
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			check(t, set.in, render(t, set.in, parseValues(t, set.values)))
		})
	}
}

// newDecoder decodes the types of Kubernetes, cert-manager and the Prometheus operator, and
// rejects unknown fields.
func newDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// decode returns the object as the type T.
func decode[T any](t *testing.T, o object) *T {
	t.Helper()
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		t.Fatalf("%s: %v", o.key(), err)
	}
	return into
}

func TestObjectsAreValidAndUnique(t *testing.T) {
	decoder := newDecoder(t)
	check := func(t *testing.T, objects []object) {
		t.Helper()
		seen := map[string]bool{}
		for _, o := range objects {
			if _, _, err := decoder.Decode([]byte(o.text), nil, nil); err != nil {
				t.Errorf("%s: %v", o.key(), err)
			}
			if seen[o.key()] {
				t.Errorf("%s is there twice", o.key())
			}
			seen[o.key()] = true
			if len(o.GetName()) > 63 && o.GetKind() == "Service" {
				t.Errorf("%s: the name is longer than 63", o.key())
			}
			if len(o.GetName()) > 52 && o.GetKind() == "CronJob" {
				t.Errorf("%s: the name is longer than 52, so the API server rejects it", o.key())
			}
			for key, value := range o.GetLabels() {
				if len(value) > 63 {
					t.Errorf("%s: the label %s is longer than 63: %s", o.key(), key, value)
				}
			}
		}
		if len(seen) < 10 {
			t.Errorf("got %d objects, want the whole of it", len(seen))
		}
	}
	eachValueSet(t, func(t *testing.T, _ install, r *rendering) { check(t, r.objects) })
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) { check(t, kustomize(t, ca, components...)) })
	}
}

func TestPodsAreRestricted(t *testing.T) {
	eachValueSet(t, func(t *testing.T, _ install, r *rendering) { checkRestricted(t, podSpecs(t, r.objects)) })
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) {
			checkRestricted(t, podSpecs(t, kustomize(t, ca, components...)))
		})
	}
}

// podSpecs returns the pods of the Deployment, of the checks and of the test, by key.
func podSpecs(t *testing.T, objects []object) map[string]corev1.PodSpec {
	t.Helper()
	specs := map[string]corev1.PodSpec{}
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			specs[o.key()] = decode[appsv1.Deployment](t, o).Spec.Template.Spec
		case "Pod":
			specs[o.key()] = decode[corev1.Pod](t, o).Spec
		case "CronJob":
			specs[o.key()] = decode[batchv1.CronJob](t, o).Spec.JobTemplate.Spec.Template.Spec
		case "ReplicaSet", "StatefulSet", "DaemonSet", "Job":
			t.Fatalf("%s: this test does not check it", o.key())
		}
	}
	if len(specs) == 0 {
		t.Fatal("there is no pod")
	}
	return specs
}

func checkRestricted(t *testing.T, specs map[string]corev1.PodSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for key, spec := range specs {
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, &spec))
		if !result.Allowed {
			t.Errorf("%s: Pod Security restricted forbids it: %s", key, result.ForbiddenDetail())
		}
		checkHardening(t, key, &spec)
	}
}

// checkHardening makes checks that Pod Security does not.
func checkHardening(t *testing.T, key string, spec *corev1.PodSpec) {
	t.Helper()
	if spec.SecurityContext.RunAsUser != nil {
		t.Errorf("%s: runAsUser is set, which OpenShift's restricted-v2 denies", key)
	}
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		t.Errorf("%s: enableServiceLinks is not false", key)
	}
	for _, c := range spec.Containers {
		switch sc := c.SecurityContext; {
		case sc.RunAsUser != nil:
			t.Errorf("%s: container %s: runAsUser is set", key, c.Name)
		case sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem:
			t.Errorf("%s: container %s may write its root file system", key, c.Name)
		}
		if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
			t.Errorf("%s: container %s has a limit on CPU", key, c.Name)
		}
		if _, limited := c.Resources.Limits[corev1.ResourceMemory]; !limited {
			t.Errorf("%s: container %s has no limit on memory", key, c.Name)
		}
		for _, mount := range c.VolumeMounts {
			if mount.SubPath != "" {
				t.Errorf("%s: %s is mounted by subPath, and would not be renewed", key, mount.Name)
			}
		}
	}
}

// Only the container that calls the API server has a token, and it cannot be used
// for longer than an hour.
func TestOnlyTheWebhookHasAToken(t *testing.T) {
	const tokens = "/var/run/secrets/kubernetes.io/serviceaccount"
	check := func(t *testing.T, d *appsv1.Deployment) {
		t.Helper()
		spec := d.Spec.Template.Spec
		if automount := spec.AutomountServiceAccountToken; automount == nil || *automount {
			t.Error("every container has a token")
		}
		volumes := map[string]*corev1.ProjectedVolumeSource{}
		for _, volume := range spec.Volumes {
			volumes[volume.Name] = volume.Projected
		}
		for _, c := range spec.Containers {
			var mounted []string
			for _, mount := range c.VolumeMounts {
				if volumes[mount.Name] != nil {
					mounted = append(mounted, mount.MountPath)
				}
			}
			want := map[string][]string{"webhook": {tokens}}[c.Name]
			if diff := cmp.Diff(want, mounted); diff != "" {
				t.Errorf("container %s: tokens (-want +got):\n%s", c.Name, diff)
			}
		}
		// client-go reads these files. The audience is the API server's.
		want := []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
			}}},
		}
		if diff := cmp.Diff(want, volumes["kube-api-access"].Sources); diff != "" {
			t.Errorf("volume kube-api-access (-want +got):\n%s", diff)
		}
	}
	eachValueSet(t, func(t *testing.T, _ install, r *rendering) { check(t, deployment(t, r.objects)) })
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) { check(t, deployment(t, kustomize(t, ca, components...))) })
	}
}

func TestGoStaysBelowTheMemoryLimit(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"the default":                   {"", "120795955"},
		"a limit in Gi":                 {"resources: {limits: {memory: 1Gi}}", "966367641"},
		"a limit in Ki":                 {"resources: {limits: {memory: 100000Ki}}", "92160000"},
		"a limit in bytes":              {"resources: {limits: {memory: 200000000}}", "180000000"},
		"a limit in bytes, as text":     {"resources: {limits: {memory: '200000000'}}", "180000000"},
		"a limit in another unit":       {"resources: {limits: {memory: 200M}}", ""},
		"a limit with a fraction":       {"resources: {limits: {memory: 1.5Gi}}", ""},
		"no limit":                      {"resources: {limits: {memory: null}}", ""},
		"no limits":                     {"resources: {limits: null}", ""},
		"no resources":                  {"resources: null", ""},
		"a variable of the user's":      {"extraEnv: [{name: GOMEMLIMIT, value: 1MiB}]", "1MiB"},
		"another variable of the users": {"extraEnv: [{name: GOGC, value: '50'}]", "120795955"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, variable := range deployment(t, render(t, defaultInstall, parseValues(t, test.values)).objects).Spec.Template.Spec.Containers[0].Env {
				if variable.Name == "GOMEMLIMIT" {
					got = append(got, variable.Value)
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got GOMEMLIMIT %q, want %q", got, test.want)
			}
		})
	}
}

// Each list of peers limits its own port, and an empty one limits nothing.
func TestTheNetworkPolicyLimitsEachPort(t *testing.T) {
	for key, port := range map[string]string{"webhookFrom": "webhook", "probesFrom": "probes", "metricsFrom": "metrics"} {
		t.Run(key, func(t *testing.T) {
			v := parseValues(t, "networkPolicy: {enabled: true, "+key+": [{ipBlock: {cidr: 192.0.2.0/24}}]}")
			policy := decode[networkingv1.NetworkPolicy](t, one(t, render(t, defaultInstall, v).objects, "NetworkPolicy/lanyard-system/lanyard-webhook"))
			if got := len(policy.Spec.Ingress); got != 3 {
				t.Fatalf("got %d rules, want one for each port", got)
			}
			for _, rule := range policy.Spec.Ingress {
				var want []networkingv1.NetworkPolicyPeer
				if rule.Ports[0].Port.String() == port {
					want = []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}}
				}
				if diff := cmp.Diff(want, rule.From); diff != "" {
					t.Errorf("port %s (-want +got):\n%s", rule.Ports[0].Port, diff)
				}
			}
		})
	}
}

// deployment returns the one Deployment.
func deployment(t *testing.T, objects []object) *appsv1.Deployment {
	t.Helper()
	found := find(objects, "Deployment")
	if len(found) != 1 {
		t.Fatalf("got %d Deployments, want 1", len(found))
	}
	return decode[appsv1.Deployment](t, found[0])
}

func TestTheProgramAcceptsItsArguments(t *testing.T) {
	check := func(t *testing.T, objects []object) {
		t.Helper()
		d := deployment(t, objects)
		container := d.Spec.Template.Spec.Containers[0]
		o := loadOptions(t, objects, "aws-default-region: eu-west-1")
		if _, err := o.Complete(nil); err != nil {
			t.Errorf("%q: %v", container.Args, err)
		}
		grace := *d.Spec.Template.Spec.TerminationGracePeriodSeconds
		if needed := int64(o.ShutdownDelay.Seconds()) + 35; grace < needed {
			t.Errorf("terminationGracePeriodSeconds: got %d, want at least %d", grace, needed)
		}
		ports := map[string]int32{}
		for _, port := range container.Ports {
			ports[port.Name] = port.ContainerPort
		}
		if ports["webhook"] != int32(o.SecurePort) {
			t.Errorf("--secure-port=%d, but the port webhook is %d", o.SecurePort, ports["webhook"])
		}
	}
	eachValueSet(t, func(t *testing.T, _ install, r *rendering) { check(t, r.objects) })
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) { check(t, kustomize(t, ca, components...)) })
	}
}

func TestSelectorsMatchTheirPods(t *testing.T) {
	eachValueSet(t, func(t *testing.T, _ install, r *rendering) {
		pod := deployment(t, r.objects).Spec.Template.Labels
		service := find(r.objects, "Service")[0].GetLabels()
		for _, o := range r.objects {
			for _, at := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "podSelector", "matchLabels"}, {"spec", "selector"}} {
				selector, found, err := unstructured.NestedStringMap(o.Object, at...)
				if err != nil || !found {
					continue
				}
				labels := pod
				if o.GetKind() == "ServiceMonitor" {
					labels = service
				}
				for key, value := range selector {
					if labels[key] != value {
						t.Errorf("%s selects by %s=%s, got %q", o.key(), key, value, labels[key])
					}
				}
			}
		}
		for _, spread := range deployment(t, r.objects).Spec.Template.Spec.TopologySpreadConstraints {
			if diff := cmp.Diff(deployment(t, r.objects).Spec.Selector, spread.LabelSelector); diff != "" {
				t.Errorf("topology spread by %s (-want +got):\n%s", spread.TopologyKey, diff)
			}
		}
	})
}

func TestItIsHighlyAvailableByDefault(t *testing.T) {
	r := render(t, defaultInstall, nil)
	d := deployment(t, r.objects)
	if *d.Spec.Replicas != 2 {
		t.Errorf("got %d replicas, want 2", *d.Spec.Replicas)
	}
	update := d.Spec.Strategy.RollingUpdate
	if update.MaxUnavailable.IntValue() != 0 || update.MaxSurge.IntValue() != 1 {
		t.Errorf("got maxUnavailable %s and maxSurge %s, want 0 and 1", update.MaxUnavailable, update.MaxSurge)
	}
	budget := one(t, r.objects, "PodDisruptionBudget/lanyard-system/lanyard-webhook")
	if got, _, _ := unstructured.NestedInt64(budget.Object, "spec", "minAvailable"); got != 1 {
		// sigs.k8s.io/yaml reads numbers as float64.
		if got, _, _ := unstructured.NestedFloat64(budget.Object, "spec", "minAvailable"); got != 1 {
			t.Errorf("got minAvailable %v, want 1", got)
		}
	}
	if len(d.Spec.Template.Spec.TopologySpreadConstraints) != 2 {
		t.Error("the replicas are not spread over nodes and zones")
	}
	for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
		// Otherwise, the replicas of the next version avoid the nodes of those that
		// they replace, and can end up on the same node.
		if diff := cmp.Diff([]string{"pod-template-hash"}, spread.MatchLabelKeys); diff != "" {
			t.Errorf("spread over %s: matchLabelKeys (-want +got):\n%s", spread.TopologyKey, diff)
		}
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux"}, d.Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("nodeSelector (-want +got):\n%s", diff)
	}
}

func TestEachObjectIsInItsNamespace(t *testing.T) {
	clustered := []string{
		"ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Namespace",
	}
	eachValueSet(t, func(t *testing.T, in install, r *rendering) {
		own := own(t, r)
		for _, o := range r.objects {
			switch got := o.GetNamespace(); {
			case slices.Contains(clustered, o.GetKind()):
				if got != "" {
					t.Errorf("%s is in a namespace", o.key())
				}
			case o.GetKind() == "ConfigMap" && got == in.Namespace: // one of extraObjects
			case got == "monitoring": // as the values say, see TestMonitoringCanBeInAnotherNamespace
			case !o.isHook() && got != own:
				t.Errorf("%s: want the namespace %s", o.key(), own)
			case got == "":
				t.Errorf("%s is in no namespace", o.key())
			}
		}
	})
}

// own returns the namespace that the webhook runs in.
func own(t *testing.T, r *rendering) string {
	t.Helper()
	return deployment(t, r.objects).Namespace
}

func TestLabelsOfTheChartCannotBeLost(t *testing.T) {
	want := map[string]string{
		"app.kubernetes.io/name": "lanyard-webhook", "app.kubernetes.io/instance": release,
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "0.1.0", "helm.sh/chart": "lanyard-0.1.0",
	}
	r := render(t, defaultInstall, parseValues(t, `
commonLabels: {app.kubernetes.io/name: mine, team: platform}
podLabels: {app.kubernetes.io/name: mine}
serviceAccount: {labels: {app.kubernetes.io/instance: mine}}`))
	for _, o := range r.objects {
		got := maps.Clone(o.GetLabels())
		if got["team"] != "platform" {
			t.Errorf("%s has no common label", o.key())
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s: got %s=%s, want %s", o.key(), key, got[key], value)
			}
		}
	}
	if got := deployment(t, r.objects).Spec.Template.Labels["app.kubernetes.io/name"]; got != "lanyard-webhook" {
		t.Errorf("pods: got the name %s", got)
	}
}

func TestTheImageIsNamed(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, test := range map[string]struct{ values, want string }{
		"by the chart's version":    {"", "lanyard-webhook:0.1.0"},
		"by tag":                    {"image: {tag: v2}", "lanyard-webhook:v2"},
		"by registry":               {"image: {registry: registry.example, repository: a/b}", "registry.example/a/b:0.1.0"},
		"by tag and digest":         {"image: {digest: '" + digest + "'}", "lanyard-webhook:0.1.0@" + digest},
		"by registry with a path":   {"image: {registry: registry.example/team/images}", "registry.example/team/images/lanyard-webhook:0.1.0"},
		"by the parent's registry":  {"global: {imageRegistry: mirror.example/a}\nimage: {registry: registry.example}", "mirror.example/a/lanyard-webhook:0.1.0"},
		"by registry with its port": {"image: {registry: 'registry.example:5000'}", "registry.example:5000/lanyard-webhook:0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := render(t, defaultInstall, parseValues(t, test.values))
			for key, spec := range podSpecs(t, r.objects) {
				if got := spec.Containers[0].Image; got != test.want {
					t.Errorf("%s: got %s, want %s", key, got, test.want)
				}
			}
		})
	}
}
