// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// realPod returns a pod as an API server sends it for a Deployment, with typical fields and
// defaults: one init container and n others.
func realPod(tb testing.TB, account string, n int) []byte {
	tb.Helper()
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "loki-ingester-7c9d8b6f5d-", Namespace: "team",
			Labels:      map[string]string{"app.kubernetes.io/name": "loki", "app.kubernetes.io/component": "ingester", "pod-template-hash": "7c9d8b6f5d"},
			Annotations: map[string]string{"checksum/config": "6f1ed002ab5595859014ebf0951522d9", "prometheus.io/scrape": "true"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "loki-ingester-7c9d8b6f5d", UID: "7f0b8e0e-2a51-4e2d-9a6e-1f0c1f5f7a11",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, DeprecatedServiceAccount: account, RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
			SchedulerName: "default-scheduler", TerminationGracePeriodSeconds: new(int64(30)), EnableServiceLinks: new(true),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), FSGroup: new(int64(10001))},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "loki"}, DefaultMode: new(int32(420))}}},
				{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(420)), Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				}}}},
			},
		},
	}
	pod.Spec.InitContainers = []corev1.Container{realContainer("init")}
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, realContainer(fmt.Sprintf("main-%d", i)))
	}
	return marshal(tb, pod)
}

func realContainer(name string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "grafana/loki:3.5.1", ImagePullPolicy: corev1.PullIfNotPresent,
		Args:  []string{"-config.file=/etc/loki/config.yaml", "-target=ingester", "-log.level=info"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 3100, Protocol: corev1.ProtocolTCP}, {Name: "grpc", ContainerPort: 9095, Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			{Name: "GOMEMLIMIT", Value: "2GiB"},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/loki"},
			{Name: "kube-api-access-x7k2p", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
		},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
	}
}

// realReview returns the review of a pod, as an API server sends it.
func realReview(tb testing.TB, pod []byte) []byte {
	tb.Helper()
	return marshal(tb, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "b1946ac9-2492-4d23-a6b2-6f9d7c5f0a11", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "team", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: pod},
			Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
		},
	})
}

// uncounted is a Recorder that does nothing.
type uncounted struct{}

func (uncounted) RecordInjection(string)                                {}
func (uncounted) RecordFinding(string)                                  {}
func (uncounted) RecordAdmission(string, string, string, time.Duration) {}

// BenchmarkReview measures one review from its body to its response, without the
// connection. It also reports the lengths of both.
func BenchmarkReview(b *testing.B) {
	accounts := map[string]map[string]string{
		"clouds=3":   threeClouds(),
		"clouds=aws": {"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1"},
		"none":       nil,
		"malformed":  {"lanyard.dev/aws-role-arn": "arn:aws:iam::1111:role/app"},
	}
	for _, account := range []string{"clouds=3", "clouds=aws", "none", "malformed"} {
		for _, n := range []int{1, 2, 20, 100} {
			b.Run(fmt.Sprintf("%s/containers=%d", account, n), func(b *testing.B) {
				pods, _ := newPods(b, accounts[account])
				pods.Recorder = uncounted{}
				benchmark(b, admission.NewHandler(pods, admission.NewBudget(), uncounted{}, logr.Discard()), realReview(b, realPod(b, "app", n)))
			})
		}
	}
}

func benchmark(b *testing.B, handler http.Handler, review []byte) {
	b.Helper()
	serve, answer := replay(b, handler, review)
	b.SetBytes(int64(len(review)))
	b.ReportAllocs()
	for b.Loop() {
		serve()
	}
	b.ReportMetric(float64(answer.written), "answer-bytes")
	b.ReportMetric(float64(len(review)), "review-bytes")
}

// replay returns a function that sends the review to the handler, and the last response. The
// function itself allocates nothing.
func replay(tb testing.TB, handler http.Handler, review []byte) (serve func(), answer *discard) {
	tb.Helper()
	body := bytes.NewReader(nil)
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/mutate-v1-pod?timeout=10s", nil)
	request.Header.Set("Content-Type", "application/json")
	request.ContentLength = int64(len(review))
	request.Body = io.NopCloser(body)
	answer = &discard{header: http.Header{}}
	return func() {
		body.Reset(review)
		handler.ServeHTTP(answer, request)
	}, answer
}

// discard is a ResponseWriter that keeps only the length.
type discard struct {
	header  http.Header
	written int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.written = len(p); return len(p), nil }

// A connection has deadlines.
func (d *discard) SetReadDeadline(time.Time) error  { return nil }
func (d *discard) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkDecode measures the full decoding of a review, which Lanyard avoids, for
// comparison.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{2, 20} {
		b.Run(fmt.Sprintf("containers=%d", n), func(b *testing.B) {
			review := realReview(b, realPod(b, "app", n))
			b.ReportAllocs()
			for b.Loop() {
				var decoded admissionv1.AdmissionReview
				var pod corev1.Pod
				if err := json.Unmarshal(review, &decoded); err != nil {
					b.Fatal(err)
				}
				if err := json.Unmarshal(decoded.Request.Object.Raw, &pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
