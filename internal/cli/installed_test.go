// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// installed is an API server with an installation of Lanyard: the answers by path. Other
// requests are forbidden.
func installed(t *testing.T, config string, args ...string) map[string]any {
	t.Helper()
	mutating, err := webhook.ReadMutating("../../deploy/base")
	if err != nil {
		t.Fatal(err)
	}
	reference := mutating.Webhooks[0].ClientConfig.Service
	path := "/namespaces/" + reference.Namespace
	pod := map[string]string{"app": "lanyard"}
	deployment := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: "lanyard"}}
	deployment.Spec.Template.Labels = pod
	deployment.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "webhook", Image: "registry.example.com/lanyard-webhook:0.1.0", Args: append(args, "--config=/etc/lanyard/config.yaml"),
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/lanyard"}},
		}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
		}}},
	}
	return map[string]any{
		"/version": version.Info{GitVersion: "v1.37.2"},
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": map[string]any{"items": []any{mutating}},
		"/api/v1" + path + "/services/" + reference.Name:                      corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace}, Spec: corev1.ServiceSpec{Selector: pod}},
		"/apis/apps/v1" + path + "/deployments":                               appsv1.DeploymentList{Items: []appsv1.Deployment{deployment}},
		"/api/v1" + path + "/configmaps/config":                               corev1.ConfigMap{Data: map[string]string{"config.yaml": config}},
	}
}

// runWith runs a command line against an API server with these responses.
func runWith(t *testing.T, answers map[string]any, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return runAgainst(t, answering(answers), input, args...)
}

// answering returns an API server with these responses by path. It sends a *metav1.Status as
// an error, and calls a function for each request.
func answering(answers map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := answers[r.URL.Path]
		if now, changes := answer.(func() any); changes {
			answer = now()
		}
		if !found {
			answer = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")
		}
		if status, failed := answer.(*metav1.Status); failed {
			w.WriteHeader(int(status.Code))
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Message: message, Code: code}
}

// runAgainst runs a command line with an API server in this process. errOut does not have the lines about
// waiting, which a slow machine prints.
func runAgainst(t *testing.T, server http.Handler, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	code, out, errOut = runSlowly(t, server, input, args...)
	return code, out, waiting.ReplaceAllString(errOut, "")
}

// runSlowly is runAgainst for an API server that a command waits for.
func runSlowly(t *testing.T, server http.Handler, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := command.NewCLI("lanyard", genericiooptions.IOStreams{In: strings.NewReader(input), Out: &stdout, ErrOut: &stderr})
	configure := c.Flags.WrapConfigFn
	c.Flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config = configure(config)
		config.Transport = inMemory{server}
		return config
	}
	args = append([]string{"--kubeconfig", os.DevNull, "--cache-dir", t.TempDir(), "--server", "http://cluster.invalid"}, args...)
	return execute(t.Context(), c, args), stdout.String(), stderr.String()
}

// inMemory is an http.RoundTripper that calls a handler. It needs no network, so it works in a
// bubble of synctest.
type inMemory struct{ server http.Handler }

// RoundTrip implements http.RoundTripper.
func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	m.server.ServeHTTP(recorder, served)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	response := recorder.Result()
	response.Request = r
	return response, nil
}

func TestVersions(t *testing.T) {
	t.Parallel()
	const prefix = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	for name, test := range map[string]struct {
		change func(map[string]any)
		code   int
		want   []string
		errOut string
	}{
		"an installation": {func(map[string]any) {}, command.ExitOK, []string{
			"Kubernetes  v1.37.2\n", "webhook     registry.example.com/lanyard-webhook:0.1.0, Deployment lanyard-system/lanyard\n",
		}, ""},
		"no installation": {func(answers map[string]any) { answers[prefix] = map[string]any{} }, command.ExitOK, []string{"webhook     not installed\n"}, ""},
		"a user without rights": {
			func(answers map[string]any) { delete(answers, prefix) }, command.ExitFailed,
			[]string{"Kubernetes  v1.37.2\n", "webhook     unknown\n"}, "error: list mutatingwebhookconfigurations: you may not\n",
		},
		"a user who may not read the Deployment": {
			func(answers map[string]any) { delete(answers, "/apis/apps/v1/namespaces/lanyard-system/deployments") }, command.ExitFailed,
			[]string{"webhook     unknown\n"}, "error: version of the webhook lanyard: list deployments in the namespace lanyard-system: you may not\n",
		},
		"no API server": {func(answers map[string]any) { clear(answers) }, command.ExitFailed, []string{"Kubernetes  unknown\n", "webhook     unknown\n"}, "error: version of the API server: unknown\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := installed(t, "")
			test.change(answers)
			code, out, errOut := runWith(t, answers, "", "version")
			if code != test.code || errOut != test.errOut || !strings.HasPrefix(out, "lanyard     ") {
				t.Errorf("got %d, %q and %q, want %d and %q", code, out, errOut, test.code, test.errOut)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("got %q, want %q", out, want)
				}
			}
		})
	}
	if code, out, _ := runWith(t, nil, "", "version", "--client", "-o", "jsonpath={.kind} {.client.platform}"); code != command.ExitOK || !strings.HasPrefix(out, "Version ") {
		t.Errorf("--client: got %d and %q", code, out)
	}
}

// The annotations are short. The settings of the installation complete them: prefixes,
// defaults with the namespace, a mapping, and a custom provider.
const short = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: loki
  namespace: shop
  annotations: {ANNOTATIONS}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web, namespace: shop}
spec: {template: {spec: {serviceAccountName: loki, containers: [{name: main, image: image}]}}}
`

func TestInjectCompletesShortNamesAsTheInstallation(t *testing.T) {
	t.Parallel()
	const config = `aws-role-arn-prefix: arn:aws:iam::111122223333:role/
aws-default-role-arn: arn:aws:iam::111122223333:role/{namespace}.{serviceaccount}
gcp-default-project: example-project
gcp-default-workload-identity-provider: projects/1/locations/global/workloadIdentityPools/pool/providers/main
providers:
- name: alibaba
  audience: sts.aliyuncs.com
  parameters:
  - {name: role-arn, required: true, pattern: 'acs:ram::[0-9]+:role/.+', example: acs:ram::1:role/x}
  - {name: sts-region, pattern: '[a-z0-9-]+', example: x, default: eu-central-1}
  environment:
  - {name: ALIBABA_CLOUD_ROLE_ARN, value: "{role-arn}"}
  - {name: ALIBABA_CLOUD_STS_REGION, value: "{sts-region}"}
  - {name: ALIBABA_CLOUD_OIDC_TOKEN_FILE, value: "{token-file}", credential: true}
`
	for annotations, wants := range map[string][]string{
		"lanyard.dev/aws-role-arn: loki":    {"value: arn:aws:iam::111122223333:role/loki\n"},
		"lanyard.dev/aws-role-arn: default": {"value: arn:aws:iam::111122223333:role/shop.loki\n"},
		"lanyard.dev/gcp-service-account: loki-reader, lanyard.dev/gcp-workload-identity-provider: default": {
			"loki-reader@example-project.iam.gserviceaccount.com", "projects/1/locations/global/workloadIdentityPools/pool/providers/main",
		},
		"lanyard.dev/alibaba-role-arn: acs:ram::1:role/loki": {"value: acs:ram::1:role/loki\n", "value: eu-central-1\n", "audience: sts.aliyuncs.com\n"},
	} {
		answers := installed(t, config)
		answers["/api/v1/namespaces/shop"] = failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found") // the manifests create it
		code, out, errOut := runWith(t, answers, strings.Replace(short, "ANNOTATIONS", annotations, 1), "inject", "--cluster", "-f", "-")
		if code != command.ExitOK || errOut != "" {
			t.Errorf("%s: got %d and %q", annotations, code, errOut)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: got %s, want %q", annotations, out, want)
			}
		}
	}
}

// With each ready-made provider and its example values, a pod gets a token, and a value that the
// pattern does not match is denied.
func TestInjectTriesCustomProviders(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/providers/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v and %v", files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := settings.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Providers {
			var values []string
			for _, p := range d.Parameters {
				value, key := cmp.Or(p.Example, "example"), d.Key(p.Name)
				if hasDefault := file.Parameters[key] != ""; hasDefault && p.Required {
					value = annotations.ClusterDefault
				} else if hasDefault || p.ClusterOnly {
					continue
				}
				values = append(values, fmt.Sprintf("%s: %q", annotations.Prefix+key, value))
			}
			manifests := strings.Replace(short, "ANNOTATIONS", strings.Join(values, ", "), 1)
			code, out, errOut := runWith(t, nil, manifests, "inject", "--config", path, "-f", "-")
			if code != command.ExitOK || errOut != "" || !strings.Contains(out, "/"+d.Name+"/token\n") && !strings.Contains(out, "path: "+d.Name+"/token") {
				t.Errorf("%s: got %d, %q and %s", path, code, errOut, out)
			}
		}
	}
	mistake := filepath.Join(t.TempDir(), "config.yaml")
	write(t, mistake, "providers:\n- name: aws\n  audience: a\n  parameters: [{name: b, required: true}]\n")
	if code, _, errOut := runWith(t, nil, short, "inject", "--config", mistake, "-f", "-"); code != command.ExitFailed || !strings.Contains(errOut, "line 2: providers[0].name: ") {
		t.Errorf("got %d and %q, want the line of the mistake", code, errOut)
	}
}
