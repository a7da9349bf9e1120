// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
)

// apiServer answers the requests of kubectl: discovery, and lists of objects without content.
func apiServer(t *testing.T) *CLI {
	t.Helper()
	type object = map[string]any
	served := func(name, kind, short string) object {
		return object{"name": name, "kind": kind, "namespaced": true, "shortNames": []string{short}, "singularName": strings.ToLower(kind), "verbs": []string{"get", "list"}}
	}
	kinds := map[string]string{"pods": "v1/Pod", "serviceaccounts": "v1/ServiceAccount", "rollouts": "argoproj.io/v1alpha1/Rollout"}
	group := object{"groupVersion": "argoproj.io/v1alpha1", "version": "v1alpha1"}
	discovery := map[string]object{
		"/api":                       {"kind": "APIVersions", "versions": []string{"v1"}},
		"/api/v1":                    {"kind": "APIResourceList", "groupVersion": "v1", "resources": []object{served("pods", "Pod", "po"), served("serviceaccounts", "ServiceAccount", "sa")}},
		"/apis":                      {"kind": "APIGroupList", "groups": []object{{"name": "argoproj.io", "versions": []object{group}, "preferredVersion": group}}},
		"/apis/argoproj.io/v1alpha1": {"kind": "APIResourceList", "groupVersion": "argoproj.io/v1alpha1", "resources": []object{served("rollouts", "Rollout", "ro")}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := discovery[r.URL.Path]
		if _, path, _ := strings.Cut(r.URL.Path, "/namespaces/shop/"); answer == nil {
			version, kind := filepath.Dir(kinds[path]), filepath.Base(kinds[path])
			list := []object{{"metadata": object{"name": "one", "namespace": "shop"}}, {"metadata": object{"name": r.URL.Query().Get("labelSelector"), "namespace": "shop"}}}
			answer = object{"apiVersion": version, "kind": kind + "List", "items": list, "metadata": object{}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	c := NewCLI("lanyard", streams)
	namespace, cache, kubeconfig := "shop", t.TempDir(), os.DevNull
	c.Flags.APIServer, c.Flags.Namespace, c.Flags.CacheDir, c.Flags.KubeConfig = &server.URL, &namespace, &cache, &kubeconfig
	return c
}

const manifest = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: cart\n"

func TestObjectsAreNamedAsForKubectl(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ args, want string }{
		"TYPE NAME":                     {"pod web", "pod/web"},
		"TYPE/NAME":                     {"po/web", "pod/web"},
		"several TYPE/NAME":             {"po/web sa/cart", "pod/web serviceaccount/cart"},
		"TYPE and names":                {"pods a b", "pod/a pod/b"},
		"a custom kind":                 {"rollouts.argoproj.io/web", "rollout/web"},
		"a kind in capitals":            {"ServiceAccount/cart", "serviceaccount/cart"},
		"an object that does not exist": {"pod missing", "pod/missing"},
		"only a type":                   {"pod", "pod has no name: write TYPE/NAME or TYPE NAME"},
		"an unknown type":               {"frob/x", `the server doesn't have a resource type "frob"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			infos, err := apiServer(t).Objects(false, strings.Fields(test.args))
			var got []string
			for _, info := range infos {
				got = append(got, NameOf(info))
				if info.Namespace != "shop" {
					t.Errorf("got %s in the namespace %s, want shop", info.Name, info.Namespace)
				}
			}
			if text := strings.Join(got, " "); text != test.want && (err == nil || err.Error() != test.want) {
				t.Errorf("got %q and %v, want %q", text, err, test.want)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub", ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.yaml", "sub/b.json", "sub/c.txt", "sub/.git/d.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		file      string
		recursive bool
		want      string
	}{
		"a file":                           {dir + "/a.yaml", false, "a.yaml"},
		"a file with another extension":    {dir + "/sub/c.txt", false, "sub/c.txt"},
		"a directory":                      {dir, false, "a.yaml"},
		"a directory with its directories": {dir, true, "a.yaml sub/b.json"},
		"a hidden directory":               {dir + "/sub/.git", true, "sub/.git/d.yaml"},
		"the standard input":               {"-", false, manifest},
	} {
		var s Selection
		s.Files.Filenames, s.Files.Recursive = []string{test.file}, test.recursive
		var got []string
		err := s.EachText(strings.NewReader(manifest), 1<<10, func(_ string, text []byte) error {
			got = append(got, string(text))
			return nil
		})
		if text := strings.Join(got, " "); err != nil || text != test.want {
			t.Errorf("%s: got %q and %v, want %q", name, text, err, test.want)
		}
	}
	s := Selection{Files: resource.FilenameOptions{Filenames: []string{dir + "/missing"}}}
	if err := s.EachText(nil, 1, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a file that does not exist", err)
	}
}

func TestOneObject(t *testing.T) {
	t.Parallel()
	if info, err := apiServer(t).Object([]string{"pod/web"}); err != nil || info.Name != "web" {
		t.Errorf("got %v and %v", info, err)
	}
	if _, err := apiServer(t).Object([]string{"pod/web", "pod/b"}); err == nil || err.Error() != "2 objects are named: this command takes one" {
		t.Errorf("got %v", err)
	}
}

func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"po/": "po/one po/", "Pod/o": "Pod/one", "sa/o": "sa/one", "rollout/o": "rollout/one", "frob/": "", "sta": "statefulset/",
	} {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		got, _ := apiServer(t).CompleteReferences(cmd, nil, typed)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: got %q, want %q", typed, text, want)
		}
	}
}
