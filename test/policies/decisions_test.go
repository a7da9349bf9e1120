// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	role      = "arn:aws:iam::111122223333:role/app"
	mountPath = "/var/run/secrets/lanyard.dev/serviceaccount"
)

// testDecisions tests decisions that no golden case covers.
func (c *cluster) testDecisions(t *testing.T) {
	s := settingsOf(t, "")
	const group, namespace = "decisions", "probe-decisions"
	c.install(t, s, group)
	create := func(name string, labels, values map[string]string) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: values}}
		account.AutomountServiceAccountToken = new(bool)
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
		return err
	}
	must(t, "required", create("required", map[string]string{annotations.IdentityLabel: annotations.IdentityRequired}, nil)) // the API server knows it before the next one
	must(t, "app", create("app", nil, map[string]string{"lanyard.dev/aws-role-arn": role}))
	must(t, "none", create("none", nil, nil))
	c.waitInjected(t, namespace, "app", annotations.Injected)
	for name, test := range map[string]struct {
		account string
		change  func(*corev1.Pod)
		want    string // of the denial; empty for a pod that is created
	}{
		"a pod that insists and is injected": {"app", func(p *corev1.Pod) { p.Annotations = map[string]string{"lanyard.dev/inject": "true"} }, ""},
		"a pod that insists without an identity": {"none", func(p *corev1.Pod) { p.Annotations = map[string]string{"lanyard.dev/inject": "true"} },
			`identity_required: pod "probe-decisions/pod" has lanyard.dev/inject: "true", but no annotation of serviceaccount "probe-decisions/none" asks for an identity`},
		"a pod with the mark of another": {"none", func(p *corev1.Pod) { p.Labels = map[string]string{injectedLabel: injectedValue} },
			"needs credentials (label lanyard.dev/identity=injected), but a container has no token mount"},
		"a mount path with dots": {"app", func(p *corev1.Pod) { mountAt(p, "/data/../"+mountPath) },
			`invalid_mount_path: pod "probe-decisions/pod": spec.containers[0].volumeMounts[0].mountPath: Invalid value: "/data/..//var/run/secrets/lanyard.dev/serviceaccount": contains "..", which policies cannot follow; write the path without it`},
		"a mount path elsewhere with dots":  {"app", func(p *corev1.Pod) { mountAt(p, "/data/../x") }, `contains "..", which policies cannot follow`},
		"a mount path with a dot":           {"app", func(p *corev1.Pod) { mountAt(p, "/var/run/./secrets/lanyard.dev/serviceaccount/x") }, "invalid_mount_path: pod"},
		"a mount path elsewhere with a dot": {"app", func(p *corev1.Pod) { mountAt(p, "/var/run/./secrets/.x/") }, ""},
		"a mount path below /run":           {"app", func(p *corev1.Pod) { mountAt(p, "/run/secrets/lanyard.dev/serviceaccount/x") }, "invalid_mount_path: pod"},
		"a device below /run": {"app", func(p *corev1.Pod) {
			mountAt(p, "/data")
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
			p.Spec.Containers[0].VolumeMounts = nil
			p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/run/secrets/lanyard.dev/serviceaccount"}}
		}, "a device must not be there"},
		"a list that leaves nothing": {"app", func(p *corev1.Pod) { p.Annotations = map[string]string{"lanyard.dev/containers": "man"} },
			"ServiceAccount probe-decisions/app needs credentials, but the annotations of the pod (lanyard.dev/containers, lanyard.dev/skip-containers) leave out all of its containers: main. Correct the names."},
		"a list that leaves nothing, with the mark": {"none", func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{injectedLabel: injectedValue}, map[string]string{"lanyard.dev/skip-containers": "main"}
		}, nothingLeft},
		"a list that leaves nothing without an identity": {"required", func(p *corev1.Pod) { p.Annotations = map[string]string{"lanyard.dev/skip-containers": "main"} },
			"identity_required: serviceaccount"},
		// This is the second pass, after another webhook has added the container.
		"a named container that came later": {"app", func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{injectedLabel: injectedValue}, map[string]string{"lanyard.dev/containers": "late"}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "late", Image: "image"})
		}, ""},
		"a long value is cut": {"app", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"lanyard.dev/containers": strings.Repeat("x", 100), "lanyard.dev/inject": "a\nb"}
		}, `[metadata.annotations[lanyard.dev/inject]: Invalid value: "a\nb": must be "false" to opt out, or "true", metadata.annotations[lanyard.dev/containers]: Invalid value: "` + strings.Repeat("x", 64) + `...": "` + strings.Repeat("x", 64) + `..." cannot be`},
		"many unknown keys": {"app", func(p *corev1.Pod) {
			p.Annotations = map[string]string{}
			for key := range strings.SplitSeq("abcdefghij", "") {
				p.Annotations["lanyard.dev/"+key] = "1"
			}
		}, "metadata.annotations: Too many: 10: must have at most 0 items"},
		"500 containers": {"app", func(p *corev1.Pod) {
			for i := range 499 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "c" + strings.Repeat("x", i%40) + string(rune('a'+i%26)) + string(rune('a'+i/26)), Image: "image"})
			}
		}, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{ServiceAccountName: test.account, Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		test.change(pod)
		got, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
		switch {
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got error %v, want %s", name, err, test.want)
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want == "" && (got.Labels[injectedLabel] != injectedValue || len(got.Spec.Containers[len(got.Spec.Containers)-1].Env) == 0):
			t.Errorf("%s: the last container has no variables", name)
		}
	}
	c.ephemeral(t, namespace)
	c.limited(t, group)
	long := strings.Repeat("a", 60)
	if err := create(long, nil, map[string]string{"lanyard.dev/aws-role-arn": role}); err == nil || !strings.Contains(err.Error(), "has a session name of more than 64 characters") {
		t.Errorf("a long session name: got error %v", err)
	}
}

// ephemeral adds an ephemeral container after its ServiceAccount got a mistake: the denial is
// on the container.
func (c *cluster) ephemeral(t *testing.T, namespace string) {
	t.Helper()
	ctx, pods := t.Context(), c.client.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "running"}, Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
	stored, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	must(t, "running", err)
	stored.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "image", VolumeMounts: []corev1.VolumeMount{{Name: "bound-sa-token", MountPath: mountPath + "/"}},
	}}}
	_, err = pods.UpdateEphemeralContainers(ctx, "running", stored, metav1.UpdateOptions{})
	if want := "invalid_mount_path: pod \"" + namespace + "/running\": spec.ephemeralContainers[0].volumeMounts[0].mountPath"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ephemeral container: got error %v, want %s", err, want)
	}
	stored.Spec.EphemeralContainers[0].VolumeMounts = nil
	stored, err = pods.UpdateEphemeralContainers(ctx, "running", stored, metav1.UpdateOptions{})
	must(t, "running", err)
	if got := stored.Spec.EphemeralContainers[0]; len(got.Env) != 4 || len(got.VolumeMounts) != 1 {
		t.Errorf("ephemeral container: got %d variables and %d mounts, want 4 and 1", len(got.Env), len(got.VolumeMounts))
	}
}

// limited writes ServiceAccounts into a namespace that allows a GUID, and the start of one, in upper case.
func (c *cluster) limited(t *testing.T, group string) {
	t.Helper()
	const namespace, allowed, other = "limited", "aaaaaaaa-2222-3333-4444-555555555555", "bbbbbbbb-2222-3333-4444-555555555555"
	const started = "cccccccc-2222-3333-4444-555555555555"
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{configLabel: group}, Annotations: map[string]string{"lanyard.dev/allowed-identities": strings.ToUpper(allowed) + ",CCCCCCCC-*"},
	}}, metav1.CreateOptions{})
	must(t, namespace, err)
	for id, want := range map[string]bool{allowed: true, strings.ToUpper(allowed): true, started: true, strings.ToUpper(started): true, other: false} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app", Annotations: map[string]string{"lanyard.dev/azure-client-id": id, "lanyard.dev/azure-tenant-id": other}}}
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, dryRun)
		if want != (err == nil) || !want && !strings.Contains(err.Error(), "identity_not_allowed") {
			t.Errorf("%s: got error %v, want it allowed: %t", id, err, want)
		}
	}
}

// mountAt mounts a volume in the first container.
func mountAt(pod *corev1.Pod, path string) {
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: path}}
}
