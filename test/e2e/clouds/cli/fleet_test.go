// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the ETag of S3
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	emulated "github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

// standIn is the part of "aws s3api put-object" that the commands of lanyard need. It fails if a
// condition does not hold, as S3 does.
const standIn = `#!/bin/sh
set -eu
[ "$1 $2" = "s3api put-object" ]
shift 2
match= none=
while [ $# -gt 0 ]; do
  case $1 in
  --bucket) [ "$2" = fleet ] ;;
  --key) key=$2 ;;
  --body) body=$2 ;;
  --content-type) [ "$2" = application/json ] ;;
  --if-match) match=$2 ;;
  --if-none-match) none=$2 ;;
  *) exit 2 ;;
  esac
  shift 2
done
etag=
if [ -e "$BUCKET/$key" ]; then etag=$(md5sum <"$BUCKET/$key" | cut -d ' ' -f 1); fi
if [ "$match" != "$etag" ] || [ -n "$none" ] && [ -n "$etag" ]; then
  echo "An error occurred (PreconditionFailed) when calling the PutObject operation" >&2
  exit 254
fi
mkdir -p "$(dirname "$BUCKET/$key")"
cp "$body" "$BUCKET/$key"
`

// fleet is a bucket that is the issuer of two clusters, and clouds that trust the issuer once.
type fleet struct {
	t                    *testing.T
	dir, bucket, url, ca string
	kubeconfig           string // with the contexts eu and us
	programs             string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{t: t, dir: dir, bucket: filepath.Join(dir, "bucket"), ca: filepath.Join(dir, "ca.pem"), kubeconfig: filepath.Join(dir, "kubeconfig"), programs: filepath.Join(dir, "bin")}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(filepath.Join(f.bucket, filepath.Clean(r.URL.Path)))
		if err != nil {
			w.WriteHeader(http.StatusForbidden) // as S3 without the right to list
			return
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(text)))) //nolint:gosec // see above
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	f.write(f.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if err := os.Mkdir(f.programs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := process.WriteScript(filepath.Join(f.programs, "aws"), standIn); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) write(name string, text []byte) {
	f.t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// newKey writes a key of a cluster as NAME.key and NAME.pub, and returns the name of the second.
func (f *fleet) newKey(name string) (public string) {
	f.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		f.t.Fatal(err)
	}
	public = filepath.Join(f.dir, name+".pub")
	f.write(filepath.Join(f.dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	f.write(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return public
}

// lanyard runs the command line, and returns its exit code and both streams.
func (f *fleet) lanyard(args ...string) (code int, out, errOut string) {
	f.t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"lanyard"}, append(args, "--kubeconfig", f.kubeconfig)...)
	code = cli.Run(f.t.Context(), args, genericiooptions.IOStreams{In: new(bytes.Buffer), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), stderr.String()
}

// prepare returns the commands that publish.
func (f *fleet) prepare(args ...string) string {
	f.t.Helper()
	code, out, errOut := f.lanyard(append([]string{"trust", "issuer", "--fleet", "--issuer", f.url, "--to", "s3://fleet", "--ca-file", f.ca}, args...)...)
	if code != command.ExitOK || !strings.Contains(errOut, "can act as each other") {
		f.t.Fatalf("%v: got %d and %s%s, want commands and the warning about the fleet", args, code, out, errOut)
	}
	return out
}

// upload runs commands.
func (f *fleet) upload(script string) error {
	cmd := exec.CommandContext(f.t.Context(), "sh")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + f.programs + ":" + os.Getenv("PATH"), "BUCKET=" + f.bucket, "TMPDIR=" + f.dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (f *fleet) mustUpload(script string) {
	f.t.Helper()
	if err := f.upload(script); err != nil {
		f.t.Fatalf("%v\n%s", err, script)
	}
}

// published returns the IDs of the published keys.
func (f *fleet) published() []string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.bucket, "openid", "v1", "jwks"))
	if err != nil {
		f.t.Fatal(err)
	}
	return kids(f.t, text)
}

// kids returns the IDs of the keys, sorted.
func kids(t *testing.T, jwks []byte) (ids []string) {
	t.Helper()
	var set struct{ Keys []struct{ Kid string } }
	if err := json.Unmarshal(jwks, &set); err != nil {
		t.Fatal(err)
	}
	for _, key := range set.Keys {
		ids = append(ids, key.Kid)
	}
	slices.Sort(ids)
	return ids
}

// start starts both clusters, with the ServiceAccount shop/cart, and returns the IDs of their keys.
// Entra needs RSA keys.
func (f *fleet) start(keys map[string]string) (eu, us string) {
	f.t.Helper()
	names := []string{"eu", "us"}
	planes := make([]*controlplane.ControlPlane, len(names))
	var group errgroup.Group
	for i, name := range names {
		group.Go(func() (err error) {
			private := strings.TrimSuffix(keys[name], ".pub") + ".key"
			planes[i], err = controlplane.Start(f.t.Context(), controlplane.Options{APIServerFlags: map[string]string{
				"service-account-issuer": f.url, "service-account-signing-key-file": private, "service-account-key-file": keys[name],
			}})
			return err
		})
	}
	err := group.Wait()
	for _, plane := range planes {
		if plane != nil {
			f.t.Cleanup(func() { _ = plane.Stop() })
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	ids := make([]string, len(names))
	for i, name := range names {
		file := filepath.Join(f.dir, name)
		if err := planes[i].Kubeconfig(file); err != nil {
			f.t.Fatal(err)
		}
		f.addContext(name, file)
		ids[i] = f.fill(planes[i])
	}
	return ids[0], ids[1]
}

// addContext adds the only context of a file to the kubeconfig.
func (f *fleet) addContext(name, file string) {
	f.t.Helper()
	one, err := clientcmd.LoadFromFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	all, err := clientcmd.LoadFromFile(f.kubeconfig)
	if err != nil {
		all = one.DeepCopy()
		clear(all.Clusters)
		clear(all.AuthInfos)
		clear(all.Contexts)
	}
	from := one.Contexts[one.CurrentContext]
	all.Clusters[name], all.AuthInfos[name] = one.Clusters[from.Cluster], one.AuthInfos[from.AuthInfo]
	all.Contexts[name] = from.DeepCopy()
	all.Contexts[name].Cluster, all.Contexts[name].AuthInfo = name, name
	all.CurrentContext = name
	if err := clientcmd.WriteToFile(*all, f.kubeconfig); err != nil {
		f.t.Fatal(err)
	}
}

// fill creates shop/cart, and returns the ID of the cluster's key.
func (f *fleet) fill(plane *controlplane.ControlPlane) string {
	f.t.Helper()
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		f.t.Fatal(err)
	}
	if err := plane.CreateNamespace(f.t.Context(), "shop"); err != nil {
		f.t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cart", Annotations: map[string]string{}}}
	for _, annotations := range []map[string]string{awsFull, azureFull, gcpFull} {
		for name, value := range annotations {
			account.Annotations["lanyard.dev/"+name] = value
		}
	}
	if _, err := client.CoreV1().ServiceAccounts("shop").Create(f.t.Context(), account, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	ids := kids(f.t, text)
	if len(ids) != 1 {
		f.t.Fatalf("got keys %v, want one", ids)
	}
	return ids[0]
}

// exchange presents the tokens of shop/cart to clouds that have not cached a key.
func (f *fleet) exchange(context string) (code int, out string) {
	f.t.Helper()
	ca, err := os.ReadFile(f.ca)
	if err != nil {
		f.t.Fatal(err)
	}
	tokens, err := issuer.New(&rest.Config{Host: f.url, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		f.t.Fatal(err)
	}
	trust := func(annotations map[string]string) emulated.Trust {
		identity := identityOf(f.t, annotations)
		return trustOf(f.t, identity, cloud.Token{Issuer: f.url, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: identity.Audience})
	}
	handler, err := emulator.New(emulated.Trust{AWS: trust(awsFull).AWS, Entra: trust(azureFull).Entra, Google: trust(gcpFull).Google}, tokens, journaltest.New().Journal)
	if err != nil {
		f.t.Fatal(err)
	}
	clouds := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = hostOf(r.URL.Path)
		handler.ServeHTTP(w, r)
	}))
	defer clouds.Close()
	cloudCA, settings := filepath.Join(f.dir, "cloud.pem"), filepath.Join(f.dir, "settings.yaml")
	f.write(cloudCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: clouds.Certificate().Raw}))
	f.write(settings, []byte(config))
	code, out, errOut := f.lanyard("check", "--exchange", "--context", context, "--namespace", "shop", "--service-account", "cart", "--config", settings, "--endpoint", clouds.URL, "--ca-file", cloudCA)
	return code, out + errOut
}

func (f *fleet) expectExchange(context string, code int, want ...string) {
	f.t.Helper()
	got, out := f.exchange(context)
	for _, text := range want {
		if !strings.Contains(out, text) {
			f.t.Errorf("%s: got\n%s\nwant %q", context, out, text)
		}
	}
	if got != code {
		f.t.Errorf("%s: got %d and\n%s\nwant %d", context, got, out, code)
	}
}

// Two clusters sign with their own keys, and share an issuer, which the clouds trust once.
func TestFleet(t *testing.T) {
	t.Setenv("KUBECACHEDIR", t.TempDir())
	f := newFleet(t)
	usPublic, otherPublic := f.newKey("us"), f.newKey("other")
	eu, us := f.start(map[string]string{"eu": f.newKey("eu"), "us": usPublic})
	accepted := []string{"AWS accepts the token", "Azure accepts the token", "Google Cloud accepts the token"}

	// Both try to be the first, and the second must read the documents again. The key of us
	// is published from its file, as before the cluster exists.
	publishEU, publishUS := []string{"--context", "eu"}, []string{"--public-key", usPublic}
	first, second := f.prepare(publishEU...), f.prepare(publishUS...)
	f.mustUpload(first)
	if err := f.upload(second); err == nil || !strings.Contains(err.Error(), "PreconditionFailed") {
		t.Errorf("two first publishers: got error %v, want a failed condition", err)
	}
	expectKeys(t, f.published(), eu)

	// When two others publish at once, no key is lost.
	first, second = f.prepare(publishUS...), f.prepare("--public-key", otherPublic)
	f.mustUpload(second)
	if err := f.upload(first); err == nil || !strings.Contains(err.Error(), "PreconditionFailed") {
		t.Errorf("two publishers at once: got error %v, want a failed condition", err)
	}
	f.mustUpload(f.prepare(publishUS...))
	all := f.published()
	if len(all) != 3 || !slices.Contains(all, eu) || !slices.Contains(all, us) {
		t.Fatalf("got keys %v, want %s, %s and another", all, eu, us)
	}
	other := slices.DeleteFunc(all, func(id string) bool { return id == eu || id == us })[0]

	// Without --fleet, nothing is written.
	code, out, errOut := f.lanyard("trust", "issuer", "--context", "eu", "--to", "s3://fleet", "--ca-file", f.ca)
	if code != command.ExitFailed || out != "" || !strings.Contains(errOut, "pass --fleet to keep them; otherwise, pass --remove-key") {
		t.Errorf("without --fleet: got %d, %q and %q, want an error with both ways", code, out, errOut)
	}

	f.mustUpload(f.prepare(append(publishEU, "--remove-key", other)...))
	expectKeys(t, f.published(), eu, us)
	for _, context := range []string{"eu", "us"} {
		if code, out, errOut := f.lanyard("check", "--context", context, "--issuer", f.url, "--ca-file", f.ca); code != command.ExitOK || !strings.Contains(out, "is public and serves all keys of the cluster") {
			t.Errorf("%s: got %d and %s%s, want its key to be public", context, code, out, errOut)
		}
		f.expectExchange(context, command.ExitOK, accepted...)
	}
	f.expectDifferences(t)

	// us is gone. Its tokens are no longer accepted, and those of eu still are.
	f.mustUpload(f.prepare(append(publishEU, "--remove-key", us)...))
	expectKeys(t, f.published(), eu)
	f.expectExchange("eu", command.ExitOK, accepted...)
	f.expectExchange("us", command.ExitFound, "InvalidIdentityToken", "AADSTS7000272", "invalid_grant")
	code, out, _ = f.lanyard("check", "--context", "eu", "--issuer", f.url, "--ca-file", f.ca, "--fleet-context", "us")
	if want := "context us: key " + us + " of the cluster is not public"; code != command.ExitFound || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("got %d and %s, want %q", code, out, want)
	}
}

// expectDifferences expects that check shows a ServiceAccount with another role in each cluster.
func (f *fleet) expectDifferences(t *testing.T) {
	t.Helper()
	args := []string{"check", "--context", "eu", "--issuer", f.url, "--ca-file", f.ca, "--fleet-context", "us"}
	if code, out, errOut := f.lanyard(args...); code != command.ExitOK || !strings.Contains(out, "2 clusters have their keys published") {
		t.Errorf("got %d and %s%s, want a fleet in order", code, out, errOut)
	}
	kubeconfig, err := clientcmd.LoadFromFile(f.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, context := range slices.Sorted(maps.Keys(kubeconfig.Contexts)) {
		config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, context, nil, nil).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mail", Annotations: map[string]string{"lanyard.dev/aws-role-arn": role + context, "lanyard.dev/aws-region": context}}}
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts("shop").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errOut := f.lanyard(args...)
	want := "ServiceAccount shop/mail is one identity for clouds, but the clusters differ: lanyard.dev/aws-role-arn is " + role + "eu in this cluster, " + role + "us in context us Use"
	if code != command.ExitOK || !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(out, "→", "")), " "), want) {
		t.Errorf("got %d and %s%s, want %q, and not the region", code, out, errOut, want)
	}
}

func expectKeys(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got published keys %v, want %v", got, want)
	}
}
