// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const testNamespace = "payments"

// TestControlPlane shares one control plane between its subtests, because a
// start takes most of their time.
func TestControlPlane(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.CreateNamespace(t.Context(), testNamespace); err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, c.Config())

	t.Run("it reports the version of the binary", func(t *testing.T) { testVersion(t, c) })
	t.Run("it issues the same tokens as a cluster", func(t *testing.T) { testToken(t, client) })
	t.Run("it denies pods without an existing ServiceAccount", func(t *testing.T) { testServiceAccountPlugin(t, client) })
	t.Run("its kubeconfig is private and has administrator rights", func(t *testing.T) { testKubeconfig(t, c) })
	t.Run("its users have no rights by default", func(t *testing.T) { testUser(t, c) })
	t.Run("it leaves nothing behind", func(t *testing.T) { testStop(t, c) })
}

func testVersion(t *testing.T, c *ControlPlane) {
	assets, err := assetsDir()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(assets, "kube-apiserver"), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := strings.CutPrefix(strings.TrimSpace(string(output)), "Kubernetes ")
	if got := c.Version(); got != want {
		t.Errorf("got version %q, want %q", got, want)
	}
	// The version of a binary that was built without a version.
	if strings.HasPrefix(c.Version(), "v0.0.0") {
		t.Errorf("got version %q, want a release", c.Version())
	}
}

func testToken(t *testing.T, client kubernetes.Interface) {
	const audience, seconds = "sts.amazonaws.com", 3600
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:         []string{audience},
		ExpirationSeconds: new(int64(seconds)),
	}}
	response, err := client.CoreV1().ServiceAccounts(testNamespace).
		CreateToken(t.Context(), "default", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type claims struct {
		Issuer    string   `json:"iss"`
		Subject   string   `json:"sub"`
		Audience  []string `json:"aud"`
		IssuedAt  int64    `json:"iat"`
		ExpiresAt int64    `json:"exp"`
	}
	var got claims
	decodeClaims(t, response.Status.Token, &got)
	want := claims{
		Issuer:    DefaultServiceAccountIssuer,
		Subject:   "system:serviceaccount:" + testNamespace + ":default",
		Audience:  []string{audience},
		IssuedAt:  got.IssuedAt,
		ExpiresAt: got.IssuedAt + seconds,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if age := time.Since(time.Unix(got.IssuedAt, 0)).Abs(); age > time.Minute {
		t.Errorf("got a token issued %v from now, want it issued now", age)
	}
}

// decodeClaims reads the second part of a JWT (RFC 7519, section 3) without
// verifying the signature.
func decodeClaims(t *testing.T, token string, claims any) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("got a token with %d parts, want 3", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, claims); err != nil {
		t.Fatal(err)
	}
}

func testServiceAccountPlugin(t *testing.T, client kubernetes.Interface) {
	pods := client.CoreV1().Pods(testNamespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "absent",
			Containers:         []corev1.Container{{Name: "main", Image: "example.com/worker"}},
		},
	}
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"absent" not found`) {
		t.Errorf("create a pod with a missing ServiceAccount: got error %v, want it forbidden for that reason", err)
	}

	pod.Spec.ServiceAccountName = ""
	created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a pod without a ServiceAccount: %v", err)
	}
	if got, want := created.Spec.ServiceAccountName, "default"; got != want {
		t.Errorf("got ServiceAccount %q, want %q", got, want)
	}
}

func testKubeconfig(t *testing.T, c *ControlPlane) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Kubeconfig(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), os.FileMode(0o600); got != want {
		t.Errorf("got mode %v, want %v", got, want)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, config).CoreV1().Secrets(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list all Secrets as the administrator: %v", err)
	}
}

func testUser(t *testing.T, c *ControlPlane) {
	config, err := c.User("alice", "developers")
	if err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, config)
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := review.Status.UserInfo
	if diff := cmp.Diff([]string{"developers", "system:authenticated"}, got.Groups); got.Username != "alice" || diff != "" {
		t.Errorf("got user %q, want \"alice\"; groups (-want +got):\n%s", got.Username, diff)
	}
	_, err = client.CoreV1().Pods(testNamespace).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list pods without a role: got error %v, want it forbidden", err)
	}
}

func testStop(t *testing.T, c *ControlPlane) {
	if got, want := processesIn(t, c.dir), 2; got != want {
		t.Errorf("before Stop: got %d processes, want %d", got, want)
	}
	for _, call := range []string{"first", "second"} {
		if err := c.Stop(); err != nil {
			t.Errorf("%s Stop: %v", call, err)
		}
	}
	if got, want := processesIn(t, c.dir), 0; got != want {
		t.Errorf("after Stop: got %d processes, want %d", got, want)
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("after Stop: stat the directory: got error %v, want it not to exist", err)
	}
}

func TestStartFailureLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	_, err := Start(t.Context(), Options{APIServerFlags: map[string]string{"no-such-flag": "true"}})
	if err == nil {
		t.Fatal("got no error, want one about the unknown flag")
	}
	if want := "unknown flag: --no-such-flag"; !strings.Contains(err.Error(), want) {
		t.Errorf("got error %q, want one with %q", err, want)
	}
	if got := processesIn(t, temp); got != 0 {
		t.Errorf("got %d processes left, want none", got)
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("got %v left in the temporary directory, want nothing", left)
	}
}

func TestStartWithCancelledContext(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("got %v left in the temporary directory, want nothing", left)
	}
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// processesIn counts the processes with the directory on their command line.
func processesIn(t *testing.T, dir string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range paths {
		// A process may end before its command line is read.
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), dir) {
			count++
		}
	}
	return count
}

func TestPolicies(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.29.6": false, "v1.29.15-gke.100": false, "v1.30.0": true, "v1.30.14": true, "v1.36.3": true, "": false,
	} {
		if got := (&ControlPlane{version: version}).Policies(); got != want {
			t.Errorf("%q: got %t, want %t", version, got, want)
		}
	}
}
