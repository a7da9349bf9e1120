// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	emulated "github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// config contains settings of the webhook for names of roles and of service accounts,
// and a custom provider.
const config = `
aws-role-arn-prefix: arn:aws:iam::123456789012:role/
gcp-default-project: my-project
gcp-default-workload-identity-provider: ` + poolOIDC + `
azure-default-tenant-id: ` + tenantID + `
providers:
- name: vault
  audience: vault
  parameters: [{name: role, required: true}]
`

// apiServer emulates a cluster with the ServiceAccount shop/cart and these annotations.
type apiServer struct {
	t           *testing.T
	key         issuertest.Key
	annotations map[string]string
	tokens      []string
	// claims replace claims of the tokens.
	claims map[string]any
	// forbidden reports whether the user may not request tokens.
	forbidden bool
}

// ServeHTTP implements http.Handler.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	type object = map[string]any
	const namespace = "/api/v1/namespaces/shop"
	metadata := object{"namespace": "shop", "name": "cart", "annotations": a.annotations, "labels": object{"lanyard.dev/identity": "enabled"}}
	serviceAccount := object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
	other := object{"metadata": object{"namespace": "shop", "name": "default"}}
	var response object
	status := http.StatusOK
	switch r.URL.Path {
	case "/version":
		response = object{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
	case "/api/v1/serviceaccounts", namespace + "/serviceaccounts":
		response = object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": object{}, "items": []object{other, {"metadata": metadata}}}
	case namespace:
		response = object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "shop"}}
	case namespace + "/serviceaccounts/cart":
		response = serviceAccount
	case namespace + "/serviceaccounts/cart/token":
		if a.forbidden {
			status = http.StatusForbidden
			response = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
				"message": `serviceaccounts "cart" is forbidden: User "alice" cannot create resource "serviceaccounts/token" in API group "" in the namespace "shop"`}
			break
		}
		body, _ := io.ReadAll(r.Body)
		request, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, new(authenticationv1.TokenRequest))
		if err != nil {
			a.t.Errorf("token request: %v", err)
			return
		}
		token := a.key.Sign(a.t, issuertest.Claims(request.(*authenticationv1.TokenRequest).Spec.Audiences[0], a.claims))
		a.tokens = append(a.tokens, token)
		response = object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": object{"token": token}}
	default:
		status = http.StatusNotFound
		response = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": r.URL.Path}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(response)
}

// hostOf returns the host of a cloud by the path that its clients use.
func hostOf(path string) string {
	switch {
	case strings.HasSuffix(path, "/oauth2/v2.0/token"):
		return "login.microsoftonline.com"
	case path == "/v1/token":
		return "sts.googleapis.com"
	case strings.HasPrefix(path, "/v1/projects/"):
		return "iamcredentials.googleapis.com"
	}
	return "sts.amazonaws.com"
}

// terminal is a user of lanyard with a cluster and emulated clouds.
type terminal struct {
	cluster    *apiServer
	issuer     *issuertest.Cluster
	kubeconfig string
	config     string
	endpoint   []string
}

func newTerminal(t *testing.T, annotations map[string]string, trusted emulated.Trust, changes ...change) *terminal {
	t.Helper()
	u := &terminal{cluster: &apiServer{t: t, key: issuertest.RSA(t, "key-1"), annotations: map[string]string{}}}
	for name, value := range annotations {
		u.cluster.annotations["lanyard.dev/"+name] = value
	}
	u.issuer = issuertest.Start(t, u.cluster.key)
	for _, change := range changes {
		change(u.cluster, u.issuer, &trusted)
	}
	handler, err := emulator.New(trusted, u.issuer.Issuer, journaltest.New().Journal)
	if err != nil {
		t.Fatal(err)
	}
	clouds := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = hostOf(r.URL.Path)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(clouds.Close)
	api := httptest.NewServer(u.cluster)
	t.Cleanup(api.Close)
	dir := t.TempDir()
	u.kubeconfig, u.config = filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	ca := filepath.Join(dir, "ca.pem")
	for name, text := range map[string]string{
		ca:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: clouds.Certificate().Raw})),
		u.config: config,
		u.kubeconfig: fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}], "users": [{"name": "c"}]}`, api.URL),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.endpoint = []string{"--endpoint", clouds.URL, "--ca-file", ca}
	return u
}

// check runs lanyard check --exchange, and returns the exit code and the output, which
// must contain no token.
func (u *terminal) check(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"lanyard", "check", "--exchange", "--kubeconfig", u.kubeconfig, "--config", u.config}, append(args, u.endpoint...)...)
	code = cli.Run(t.Context(), args, genericiooptions.IOStreams{In: new(bytes.Buffer), Out: &stdout, ErrOut: &stderr})
	for _, token := range u.cluster.tokens {
		if strings.Contains(stdout.String()+stderr.String(), token) {
			t.Errorf("got a token in the output: %s", stdout.String())
		}
	}
	return code, stdout.String() + stderr.String()
}

// trusted returns clouds that trust the ServiceAccount with the annotations.
func trusted(t *testing.T, annotations map[string]string) emulated.Trust {
	t.Helper()
	identity := identityOf(t, annotations)
	return trustOf(t, identity, cloud.Token{Issuer: issuertest.URL, ServiceAccounts: []cloud.ServiceAccount{{Namespace: "shop", Name: "cart"}}, Audience: identity.Audience})
}

var (
	awsFull   = map[string]string{"aws-role-arn": role}
	azureFull = map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID}
	gcpFull   = map[string]string{"gcp-workload-identity-provider": poolOIDC, "gcp-service-account": email}
)

// The annotations contain short values, which only the settings of the webhook expand.
func TestCheckExchangesTokens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		full, short map[string]string
		want        string
	}{
		"AWS":          {awsFull, map[string]string{"aws-role-arn": "team/cart"}, "√ shop/cart: AWS accepts the token, as arn:aws:sts::123456789012:assumed-role/cart/cart@shop\n"},
		"Azure":        {azureFull, map[string]string{"azure-client-id": clientID}, "√ shop/cart: Azure accepts the token, as " + clientID + " in the tenant " + tenantID + "\n"},
		"Google Cloud": {gcpFull, map[string]string{"gcp-service-account": "cart-app"}, "√ shop/cart: Google Cloud accepts the token, as " + email + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTerminal(t, test.short, trusted(t, test.full))
			code, out := u.check(t)
			if !strings.Contains(out, test.want) || code != command.ExitOK {
				t.Errorf("got %d and\n%s\nwant 0 and %q", code, out, test.want)
			}
			inPod := regexp.MustCompile(`(?m)^kubectl run lanyard-exchange --namespace shop --rm --stdin --restart=Never .*\\\n +--overrides='{"spec":{"serviceAccountName":"cart"}}' --image=`)
			if !strings.Contains(out, "this machine asked the cloud") || !inPod.MatchString(out) {
				t.Errorf("got\n%s\nwant the command that asks from inside a pod", out)
			}
		})
	}
}

// change makes a cloud deny the token of shop/cart.
type change = func(*apiServer, *issuertest.Cluster, *emulated.Trust)

func statement(trust *emulated.Trust) *emulated.Statement {
	return &trust.AWS.Roles[0].AssumeRolePolicyDocument.Statement[0]
}

func record(trust *emulated.Trust) *emulated.FederatedIdentityCredential {
	return &trust.Entra.Tenants[0].Applications[0].FederatedIdentityCredentials[0]
}

func unpublished(cluster *apiServer, _ *issuertest.Cluster, _ *emulated.Trust) {
	cluster.key = issuertest.RSA(cluster.t, "key-9")
}

func down(_ *apiServer, issuer *issuertest.Cluster, _ *emulated.Trust) { issuer.SetDown(true) }

var denials = map[string]struct {
	annotations map[string]string
	change      change
	// want are parts of the output: the code, the cause and the repair.
	want []string
}{
	"AWS in another account": {awsFull, func(cluster *apiServer, _ *issuertest.Cluster, _ *emulated.Trust) {
		cluster.annotations["lanyard.dev/aws-role-arn"] = "arn:aws:iam::444455556666:role/cart"
	}, []string{
		"InvalidIdentityToken", "has no IAM OIDC provider", "in the AWS account 444455556666", "--output terraform",
		"aws iam create-open-id-connect-provider --url " + issuertest.URL + " --client-id-list sts.amazonaws.com",
	}},
	"AWS with another audience": {awsFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.AWS.OpenIDConnectProviders[0].ClientIDList = []string{"other"}
	}, []string{"InvalidIdentityToken", "is not a client ID", "aws iam add-client-id-to-open-id-connect-provider", "--client-id sts.amazonaws.com"}},
	"AWS with another key":   {awsFull, unpublished, []string{"InvalidIdentityToken", "the published keys of the issuer are outdated", "lanyard check --issuer " + issuertest.URL}},
	"AWS without the issuer": {awsFull, down, []string{"IDPCommunicationError", "AWS cannot reach the issuer", "lanyard check --issuer"}},
	"AWS with another subject": {awsFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		statement(trust).Condition["StringEquals"][strings.TrimPrefix(issuertest.URL, "https://")+":sub"] = emulated.Strings{"system:serviceaccount:shop:other"}
	}, []string{"AccessDenied", "its trust policy names another issuer, subject or audience", "aws iam update-assume-role-policy --role-name cart", `"system:serviceaccount:shop:cart"`}},
	"AWS without the role": {awsFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) { trust.AWS.Roles = nil },
		[]string{"AccessDenied", "the role does not exist", "# aws iam create-role --role-name cart --path /team/"}},
	"Azure with another issuer": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) { record(trust).Issuer += "/" },
		[]string{"AADSTS700211", "no federated credential of the identity has exactly this issuer", "az identity federated-credential create", "--issuer " + issuertest.URL + " "}},
	"Azure with another subject": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		record(trust).Subject = "system:serviceaccount:shop:other"
	}, []string{"AADSTS700213", "has this namespace and ServiceAccount", "--subject system:serviceaccount:shop:cart"}},
	"Azure with capital letters": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		record(trust).Subject = "system:serviceaccount:shop:CART"
	}, []string{"AADSTS7002138", "capital letters", "--subject system:serviceaccount:shop:cart"}},
	"Azure with another audience": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		record(trust).Audiences = []string{"other"}
	}, []string{"AADSTS700212", "the audiences of the federated credential and the token differ", "az identity federated-credential update", "--audiences api://AzureADTokenExchange"}},
	"Azure without a credential": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Entra.Tenants[0].Applications[0].FederatedIdentityCredentials = nil
	}, []string{"AADSTS70025", "has no federated credential", "az identity federated-credential create"}},
	"Azure without the client": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Entra.Tenants[0].Applications[0].AppID = "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	}, []string{"AADSTS700016", "the tenant does not have this client ID", "lanyard.dev/azure-client-id=CLIENT_ID"}},
	"Azure without the tenant": {azureFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Entra.Tenants[0].TenantID = "22222222-2222-4333-8444-555555555555"
	}, []string{"AADSTS90002", "the tenant does not exist", "lanyard.dev/azure-tenant-id="}},
	"Azure with another key":   {azureFull, unpublished, []string{"AADSTS7000272", "the published keys of the issuer are outdated", "lanyard check --issuer"}},
	"Azure without the issuer": {azureFull, down, []string{"AADSTS90061", "Entra cannot reach the issuer", "lanyard check --issuer"}},
	"Azure with an elliptic key": {azureFull, func(cluster *apiServer, issuer *issuertest.Cluster, _ *emulated.Trust) {
		cluster.key = issuertest.ECDSA(cluster.t, "key-2")
		issuer.Publish(cluster.key)
	}, []string{"AADSTS5002738", "--service-account-signing-key-file"}},
	"Google Cloud with another issuer": {gcpFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Google.WorkloadIdentityPoolProviders[0].OIDC.IssuerURI += "/"
	}, []string{"invalid_grant", "the provider of the pool has a different issuer", "--issuer-uri " + issuertest.URL + "\n"}},
	"Google Cloud with another audience": {gcpFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Google.WorkloadIdentityPoolProviders[0].OIDC.AllowedAudiences = []string{"other"}
	}, []string{"invalid_grant", "does not allow the audience", "--allowed-audiences https://iam.googleapis.com/" + poolOIDC}},
	"Google Cloud with another key": {gcpFull, unpublished, []string{"invalid_grant", "the published keys of the issuer are outdated", "--keep-keys uploaded.json"}},
	"Google Cloud without the provider": {gcpFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Google.WorkloadIdentityPoolProviders = nil
	}, []string{"invalid_target", "the pool or the provider is missing", "gcloud iam workload-identity-pools providers create-oidc kubernetes", "--keep-keys uploaded.json"}},
	"Google Cloud without the member": {gcpFull, func(_ *apiServer, _ *issuertest.Cluster, trust *emulated.Trust) {
		trust.Google.ServiceAccounts[0].Policy.Bindings = nil
	}, []string{"PERMISSION_DENIED", "may not impersonate it", "gcloud iam service-accounts add-iam-policy-binding " + email, "--member " + principal}},
	"Google Cloud with an old token": {gcpFull, func(cluster *apiServer, _ *issuertest.Cluster, _ *emulated.Trust) {
		cluster.claims = map[string]any{"iat": 1700000000, "exp": 1700003600}
	}, []string{"invalid_grant", "the clocks of the control plane and the cloud differ"}},
}

func TestCheckExplainsDenials(t *testing.T) {
	t.Parallel()
	for name, test := range denials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTerminal(t, test.annotations, trusted(t, test.annotations), test.change)
			code, out := u.check(t, "--namespace", "shop")
			if code != command.ExitFound || !strings.Contains(out, "× shop/cart: ") {
				t.Errorf("got %d and\n%s\nwant 1 and a denial", code, out)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("got\n%s\nwant %q in it", out, want)
				}
			}
		})
	}
}

// The policy of the repair makes the cloud accept the token.
func TestTheRepairOfARoleRepairsIt(t *testing.T) {
	t.Parallel()
	trust := trusted(t, awsFull)
	statement(&trust).Action = emulated.Strings{"sts:TagSession"}
	_, out := newTerminal(t, awsFull, trust).check(t)
	policy := regexp.MustCompile(`(?s)cat > trust.json <<'EOF'\n(.*?)\nEOF\n`).FindStringSubmatch(out)
	if policy == nil {
		t.Fatalf("got\n%s\nwant a policy", out)
	}
	if err := json.Unmarshal([]byte(policy[1]), &trust.AWS.Roles[0].AssumeRolePolicyDocument); err != nil {
		t.Fatal(err)
	}
	if code, out := newTerminal(t, awsFull, trust).check(t); code != command.ExitOK {
		t.Errorf("got %d and\n%s", code, out)
	}
}

// A check that could not run is skipped with its reason, and makes the exit code 2.
func TestCheckSkipsUnsupportedExchanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		change      func(*terminal)
		code        int
		want        string
	}{
		"a missing right":         {awsFull, func(u *terminal) { u.cluster.forbidden = true }, command.ExitFailed, "a token of shop/cart: not known: you may not create serviceaccounts/token in the namespace shop"},
		"no network to the cloud": {awsFull, func(u *terminal) { u.endpoint[1] = "https://127.0.0.1:1" }, command.ExitFailed, "shop/cart: AWS: not known: "},
		"a custom provider":       {map[string]string{"vault-role": "cart"}, nil, command.ExitOK, "shop/cart: lanyard cannot exchange tokens for vault"},
		"a token only":            {map[string]string{"tokens": "aws"}, nil, command.ExitOK, "shop/cart: its pods get a token for AWS, but no identity"},
		"no annotation":           {nil, nil, command.ExitOK, "shop/cart: its pods get no token"},
		"a denial of the pods":    {map[string]string{"aws-role-arn": "a b"}, nil, command.ExitFound, "shop/cart: new pods are denied: "},
		"a profile of a profile": {map[string]string{"aws-role-arn": role, "aws-role-arn.audit": role, "aws-source-profile.audit": "default"}, nil, command.ExitOK,
			"shop/cart: AWS, profile audit needs the credentials of the profile default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTerminal(t, test.annotations, trusted(t, awsFull))
			if test.change != nil {
				test.change(u)
			}
			if code, out := u.check(t, "--namespace", "shop", "--service-account", "cart"); code != test.code || !strings.Contains(out, test.want) {
				t.Errorf("got %d and\n%s\nwant %d and %q", code, out, test.code, test.want)
			}
		})
	}
}

func TestCheckExchangesProfiles(t *testing.T) {
	t.Parallel()
	u := newTerminal(t, map[string]string{"aws-role-arn": "team/cart", "aws-role-arn.audit": "audit"}, trusted(t, awsFull))
	code, out := u.check(t)
	for _, want := range []string{"√ shop/cart: AWS accepts the token", "× shop/cart: AWS, profile audit denies the token: AccessDenied", "--role-name audit --policy-document"} {
		if !strings.Contains(out, want) || code != command.ExitFound {
			t.Errorf("got %d and\n%s\nwant 1 and %q", code, out, want)
		}
	}
}
