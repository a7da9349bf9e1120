// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command status measures "lanyard status --all-namespaces" on a large cluster: its
// memory, and the time to its first output. The cluster is a server of canned
// responses in this process, so what it measures is the command alone.
//
//	go build -o bin/lanyard ./cmd/lanyard && go run ./test/bench/status bin/lanyard
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The cluster.
const (
	namespaces      = 400
	serviceAccounts = 50  // in each namespace: 20,000
	pods            = 125 // in each namespace: 50,000
)

// What the issue asks for.
const (
	maxMemory = 60 << 20
	maxFirst  = 2 * time.Second
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: status PATH-OF-LANYARD")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "status:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string) error {
	server := httptest.NewServer(newCluster())
	defer server.Close()
	dir, err := os.MkdirTemp("", "lanyard-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, binary, "--kubeconfig", kubeconfig, "status", "--all-namespaces") //nolint:gosec // the binary to measure
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := command.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(output)
	if _, err := lines.ReadString('\n'); err != nil {
		return fmt.Errorf("first line: %w", err)
	}
	first := time.Since(start)
	rest, err := io.ReadAll(lines)
	if err != nil {
		return err
	}
	if err := command.Wait(); err != nil {
		return err
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return fmt.Errorf("got no resource usage of the process")
	}
	memory := usage.Maxrss << 10 // KiB on Linux
	fmt.Printf("%d rows, first after %s, all after %s, at most %d MiB resident\n",
		strings.Count(string(rest), "\n"), first.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), memory>>20)
	if memory > maxMemory || first > maxFirst {
		return fmt.Errorf("want at most %d MiB and the first output within %s", maxMemory>>20, maxFirst)
	}
	return nil
}

// newCluster serves what status reads.
func newCluster() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"kind":"MutatingWebhookConfigurationList","apiVersion":"admissionregistration.k8s.io/v1","items":[{"metadata":{"name":"lanyard"},"webhooks":[{"name":"pods.lanyard.dev"}]}]}`)
	})
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, namespaces, func(i int) metav1.ObjectMeta { return metav1.ObjectMeta{Name: namespace(i)} })
	})
	mux.HandleFunc("GET /api/v1/serviceaccounts", func(w http.ResponseWriter, r *http.Request) {
		page(w, r, namespaces*serviceAccounts, func(i int) metav1.ObjectMeta {
			return metav1.ObjectMeta{
				Namespace: namespace(i / serviceAccounts), Name: fmt.Sprintf("account-%03d", i%serviceAccounts),
				Annotations: map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/app"},
				Labels:      map[string]string{"lanyard.dev/identity": "enabled"},
			}
		})
	})
	none := func(w http.ResponseWriter, r *http.Request) {
		page(w, r, 0, func(int) metav1.ObjectMeta { return metav1.ObjectMeta{} })
	}
	mux.HandleFunc("GET /apis/apps/v1/namespaces/{namespace}/replicasets", none)
	mux.HandleFunc("GET /apis/batch/v1/namespaces/{namespace}/jobs", none)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, _ *http.Request) {
		var items []string
		for i := range pods {
			items = append(items, pod(i))
		}
		reply(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`+strings.Join(items, ",")+`]}`)
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","annotations":{"lanyard.dev/injected":"aws"}}}`)
	})
	return mux
}

func namespace(i int) string { return fmt.Sprintf("namespace-%03d", i) }

// pod returns a pod about as large as a real one.
func pod(i int) string {
	var env []string
	for n := range 30 {
		env = append(env, fmt.Sprintf(`{"name":"VARIABLE_%d","value":"a value of about the usual length"}`, n))
	}
	return fmt.Sprintf(`{"metadata":{"name":"pod-%d","annotations":{"lanyard.dev/injected":"aws"},`+
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"set-%d","uid":"x","controller":true}]},`+
		`"spec":{"serviceAccountName":"account-%03d","containers":[{"name":"main","image":"image","env":[%s]}]},"status":{"phase":"Running"}}`,
		i, i, i%serviceAccounts, strings.Join(env, ","))
}

// page replies with a part of a list of metadata.
func page(w http.ResponseWriter, r *http.Request, n int, object func(int) metav1.ObjectMeta) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = n
	}
	from, err := strconv.Atoi(r.URL.Query().Get("continue"))
	if err != nil {
		from = 0
	}
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
		Items:    []metav1.PartialObjectMetadata{},
	}
	for i := from; i < min(n, from+limit); i++ {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: object(i),
		})
	}
	if from+limit < n {
		list.Continue = strconv.Itoa(from + limit)
	}
	text, err := json.Marshal(list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, string(text))
}

func reply(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text) // a client that goes away needs no reply
}
