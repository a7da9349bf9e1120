// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status measures "lanyard status --all-namespaces" on a large cluster: its
// memory, and the time to its first output. The cluster is a server of canned
// responses in this process, so only the command is measured.
//
//	go build -o bin/lanyard ./cmd/lanyard && go test -v ./test/bench/status -args -lanyard ../../../bin/lanyard
package status

import (
	"bufio"
	"encoding/json"
	"flag"
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
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The cluster.
const (
	namespaces      = 400
	serviceAccounts = 50  // in each namespace: 20,000
	pods            = 125 // in each namespace: 50,000
)

// The limits.
const (
	maxMemory = 60 << 20
	maxFirst  = 2 * time.Second
)

var lanyard = flag.String("lanyard", "", "`path` of lanyard")

func TestStatusOfALargeCluster(t *testing.T) {
	if *lanyard == "" {
		t.Skip("takes long; set -lanyard to run it")
	}
	server := httptest.NewServer(newCluster())
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], `+
		`clusters: [{name: c, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), *lanyard, "--kubeconfig", kubeconfig, "status", "--all-namespaces")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatalf("first line: %v", err)
	}
	first := time.Since(start)
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("got no resource usage of the process")
	}
	memory := usage.Maxrss << 10 // KiB on Linux
	rows := strings.Count(string(rest), "\n")
	t.Logf("%d rows, first after %s, all after %s, at most %d MiB resident", rows, first, time.Since(start), memory>>20)
	if memory > maxMemory || first > maxFirst {
		t.Errorf("want at most %d MiB and the first output within %s", maxMemory>>20, maxFirst)
	}
}

// newCluster serves the objects that status reads.
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
