// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	roleARN      = "arn:aws:iam::111122223333:role/logs"
	clientID     = "01234567-89ab-cdef-0123-456789abcdef"
	tenantID     = "fedcba98-7654-3210-fedc-ba9876543210"
	email        = "reader@my-project.iam.gserviceaccount.com"
	providerName = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-k8s"

	authority = "https://login.microsoftonline.com/"

	mountPath = "/var/run/secrets/lanyard.dev/serviceaccount"
)

func subject() *provider.Subject {
	return &provider.Subject{Namespace: "team-a", ServiceAccount: "loki", MountPath: mountPath, TokenExpirationSeconds: 3600}
}

// identity returns an identity with the values, which are given as a name and a
// value each.
func identity(name, audience string, values ...string) annotations.Identity {
	i := slices.IndexFunc(provider.Builtin(), func(d *annotations.Provider) bool { return d.Name == name })
	identity := annotations.Identity{Provider: provider.Builtin()[i], Audience: audience, Values: annotations.Values{}}
	for pair := range slices.Chunk(values, 2) {
		identity.Values[pair[0]] = pair[1]
	}
	return identity
}

// all asks for every provider, with a value for each parameter.
func all() []annotations.Identity {
	return []annotations.Identity{
		identity("aws", "sts.amazonaws.com", "role-arn", roleARN, "region", "eu-central-1"),
		identity("azure", "api://AzureADTokenExchange", "client-id", clientID, "tenant-id", tenantID, "authority-host", authority),
		identity("gcp", "https://iam.googleapis.com/"+providerName,
			"workload-identity-provider", providerName, "service-account", email, "project", "my-project"),
		identity("token", "openshift"),
	}
}

func TestNewInjectionHasTheTokensFilesAndVariablesOfEachProvider(t *testing.T) {
	t.Parallel()
	const directFile = `{"type":"external_account","audience":"//iam.googleapis.com/` + providerName + `",` +
		`"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.googleapis.com/v1/token",` +
		`"credential_source":{"file":"` + mountPath + `/gcp/token","format":{"type":"text"}}}`
	const impersonationFile = `,"service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/` + email + `:generateAccessToken"}`
	empty := []string{""}
	awsShadows := []annotations.Shadow{
		{Name: "AWS_ACCESS_KEY_ID", Unless: empty}, {Name: "AWS_SECRET_ACCESS_KEY", Unless: empty}, {Name: "AWS_ACCESS_KEY", Unless: empty}, {Name: "AWS_SECRET_KEY", Unless: empty},
		{Name: "AMAZON_ACCESS_KEY_ID", Unless: empty}, {Name: "AMAZON_SECRET_ACCESS_KEY", Unless: empty},
		{Name: "AWS_PROFILE"}, {Name: "AWS_DEFAULT_PROFILE"}, {Name: "AWS_SHARED_CREDENTIALS_FILE"}, {Name: "AWS_CONFIG_FILE"},
	}
	regions := map[string][]string{"region": {"AMAZON_REGION"}}
	gcpShadows := []annotations.Shadow{{Name: "CLOUDSDK_AUTH_ACCESS_TOKEN", Unless: empty}, {Name: "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", Unless: empty}}
	projects := map[string][]string{"project": {"GCLOUD_PROJECT", "GCP_PROJECT", "gcloud_project", "google_cloud_project"}}
	awsVariables := []annotations.Variable{
		{Name: "AWS_ROLE_ARN", Value: roleARN, Needed: true, Direct: true},
		{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: mountPath + "/aws/token", Credential: true, Direct: true},
		{Name: "AWS_ROLE_SESSION_NAME", Value: "loki@team-a", Direct: true},
		{Name: "AWS_STS_REGIONAL_ENDPOINTS", Value: "regional"},
	}
	gcpVariables := []annotations.Variable{
		{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: mountPath + "/gcp/credentials.json", Credential: true},
		{Name: "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Value: mountPath + "/gcp/credentials.json", Credential: true},
	}
	gcpProject := []annotations.Variable{
		{Name: "GOOGLE_CLOUD_PROJECT", Value: "my-project", Group: "project"},
		{Name: "CLOUDSDK_CORE_PROJECT", Value: "my-project", Group: "project"},
	}
	tests := map[string]struct {
		identity annotations.Identity
		want     provider.Provider
	}{
		"AWS with the name of the pod as the session name": {
			identity: identity("aws", "sts.amazonaws.com", "role-arn", roleARN, "session-name", "pod"),
			want: provider.Provider{
				Name:  "aws",
				Token: provider.Token{Audience: "sts.amazonaws.com", ExpirationSeconds: 3600, Path: "aws/token"},
				Variables: []annotations.Variable{
					awsVariables[0], awsVariables[1],
					{Name: "AWS_ROLE_SESSION_NAME", Value: "loki@team-a", PodName: "session-name", Direct: true},
					awsVariables[3],
				},
				Shadows: awsShadows, Synonyms: regions,
			},
		},
		"AWS without a region sets no region": {
			identity: identity("aws", "sts.amazonaws.com", "role-arn", roleARN),
			want: provider.Provider{
				Name:      "aws",
				Token:     provider.Token{Audience: "sts.amazonaws.com", ExpirationSeconds: 3600, Path: "aws/token"},
				Variables: awsVariables,
				Shadows:   awsShadows, Synonyms: regions,
			},
		},
		"AWS with a region sets both region variables": {
			identity: identity("aws", "mine", "role-arn", roleARN, "region", "eu-central-1"),
			want: provider.Provider{
				Name:  "aws",
				Token: provider.Token{Audience: "mine", ExpirationSeconds: 3600, Path: "aws/token"},
				Variables: slices.Concat(awsVariables, []annotations.Variable{
					{Name: "AWS_REGION", Value: "eu-central-1", Group: "region"},
					{Name: "AWS_DEFAULT_REGION", Value: "eu-central-1", Group: "region"},
				}),
				Shadows: awsShadows, Synonyms: regions,
			},
		},
		"Azure sets the authority": {
			identity: identity("azure", "api://AzureADTokenExchange", "client-id", clientID, "tenant-id", tenantID, "authority-host", authority),
			want: provider.Provider{
				Name:  "azure",
				Token: provider.Token{Audience: "api://AzureADTokenExchange", ExpirationSeconds: 3600, Path: "azure/token"},
				Variables: []annotations.Variable{
					{Name: "AZURE_CLIENT_ID", Value: clientID, Needed: true},
					{Name: "AZURE_TENANT_ID", Value: tenantID, Needed: true},
					{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: mountPath + "/azure/token", Credential: true},
					{Name: "AZURE_AUTHORITY_HOST", Value: authority, Needed: true},
				},
				Shadows: []annotations.Shadow{
					{Name: "AZURE_CLIENT_SECRET"}, {Name: "AZURE_CLIENT_CERTIFICATE_PATH"}, {Name: "AZURE_USERNAME"}, {Name: "AZURE_PASSWORD"},
					{Name: "AZURE_TOKEN_CREDENTIALS", Unless: []string{"prod", "WorkloadIdentityCredential", "workloadidentitycredential"}},
				},
			},
		},
		"Google's direct federation without a project": {
			identity: identity("gcp", "https://iam.googleapis.com/"+providerName, "workload-identity-provider", providerName),
			want: provider.Provider{
				Name:      "gcp",
				Token:     provider.Token{Audience: "https://iam.googleapis.com/" + providerName, ExpirationSeconds: 3600, Path: "gcp/token"},
				File:      provider.File{Annotation: "gcp-credentials", Path: "gcp/credentials.json", Content: directFile},
				Variables: gcpVariables, Synonyms: projects, Shadows: gcpShadows,
			},
		},
		"Google's direct federation with a project": {
			identity: identity("gcp", "mine", "workload-identity-provider", providerName, "project", "my-project"),
			want: provider.Provider{
				Name:      "gcp",
				Token:     provider.Token{Audience: "mine", ExpirationSeconds: 3600, Path: "gcp/token"},
				File:      provider.File{Annotation: "gcp-credentials", Path: "gcp/credentials.json", Content: directFile},
				Variables: slices.Concat(gcpVariables, gcpProject), Synonyms: projects, Shadows: gcpShadows,
			},
		},
		"Google's impersonation derives the project from the e-mail": {
			identity: identity("gcp", "mine", "workload-identity-provider", providerName, "service-account", email),
			want: provider.Provider{
				Name:      "gcp",
				Token:     provider.Token{Audience: "mine", ExpirationSeconds: 3600, Path: "gcp/token"},
				File:      provider.File{Annotation: "gcp-credentials", Path: "gcp/credentials.json", Content: strings.TrimSuffix(directFile, "}") + impersonationFile},
				Variables: slices.Concat(gcpVariables, gcpProject), Synonyms: projects, Shadows: gcpShadows,
			},
		},
		"a plain token": {
			identity: identity("token", "openshift"),
			want: provider.Provider{
				Name:      "token",
				Token:     provider.Token{Audience: "openshift", ExpirationSeconds: 3600, Path: "token"},
				Variables: []annotations.Variable{{Name: "LANYARD_TOKEN_FILE", Value: mountPath + "/token", Credential: true}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(tt.identity.Values)
			injection := provider.NewInjection([]annotations.Identity{tt.identity}, subject())
			if diff := cmp.Diff([]provider.Provider{tt.want}, injection.Providers); diff != "" {
				t.Errorf("providers (-want +got):\n%s", diff)
			}
			if injection.MountPath != mountPath {
				t.Errorf("mount path: got %q, want %q", injection.MountPath, mountPath)
			}
			if diff := cmp.Diff(before, tt.identity.Values); diff != "" {
				t.Errorf("the identity was changed (-before +after):\n%s", diff)
			}
			checkInjection(t, injection)
		})
	}
}

func TestAProjectOfItsOwnTakesPrecedenceOverThatOfTheEmail(t *testing.T) {
	t.Parallel()
	gcp := identity("gcp", "x", "workload-identity-provider", providerName, "service-account", email, "project", "other-project")
	environment := expanded(provider.NewInjection([]annotations.Identity{gcp}, subject()))
	for _, name := range []string{"GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"} {
		if got := environment[name]; got != "other-project" {
			t.Errorf("%s: got %q, want other-project", name, got)
		}
	}
}

func TestNewInjectionKeepsTheOrderOfTheIdentities(t *testing.T) {
	t.Parallel()
	injection := provider.NewInjection(all(), subject())
	var want, got []string
	for _, d := range provider.Builtin() {
		want = append(want, d.Name)
	}
	for _, p := range injection.Providers {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	checkInjection(t, injection)
}

func TestNewInjectionHasWindowsPathsForWindowsPods(t *testing.T) {
	t.Parallel()
	windows := subject()
	windows.Windows = true
	injection := provider.NewInjection(all(), windows)

	const front = `C:\var\run\secrets\lanyard.dev\serviceaccount\`
	want := map[string]string{
		"AWS_WEB_IDENTITY_TOKEN_FILE":            front + `aws\token`,
		"AZURE_FEDERATED_TOKEN_FILE":             front + `azure\token`,
		"GOOGLE_APPLICATION_CREDENTIALS":         front + `gcp\credentials.json`,
		"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE": front + `gcp\credentials.json`,
		"LANYARD_TOKEN_FILE":                     front + `token`,
	}
	environment := expanded(injection)
	for name, value := range want {
		if environment[name] != value {
			t.Errorf("%s: got %q, want %q", name, environment[name], value)
		}
	}
	for _, p := range injection.Providers {
		if p.File.Path == "" {
			continue
		}
		if got := parseCredentials(t, p.File.Content).CredentialSource.File; got != front+`gcp\token` {
			t.Errorf("credential_source.file: got %q, want %q", got, front+`gcp\token`)
		}
	}
	if injection.MountPath != mountPath {
		t.Errorf("mount path: got %q, want %q, whose slashes the kubelet turns", injection.MountPath, mountPath)
	}
	checkInjection(t, injection)
}

func TestNewInjectionFollowsTheMountPath(t *testing.T) {
	t.Parallel()
	openshift := subject()
	openshift.MountPath = "/var/run/secrets/openshift/serviceaccount"
	injection := provider.NewInjection([]annotations.Identity{identity("token", "openshift")}, openshift)
	if got, want := expanded(injection)["LANYARD_TOKEN_FILE"], "/var/run/secrets/openshift/serviceaccount/token"; got != want {
		t.Errorf("LANYARD_TOKEN_FILE: got %q, want %q", got, want)
	}
	if injection.MountPath != openshift.MountPath {
		t.Errorf("mount path: got %q, want %q", injection.MountPath, openshift.MountPath)
	}
}

func TestEveryTokenHasTheRequestedLifetime(t *testing.T) {
	t.Parallel()
	day := subject()
	day.TokenExpirationSeconds = 86400
	for _, p := range provider.NewInjection(all(), day).Providers {
		if p.Token.ExpirationSeconds != 86400 {
			t.Errorf("%s: got %d, want 86400", p.Name, p.Token.ExpirationSeconds)
		}
	}
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		identity annotations.Identity
		want     string
	}{
		"a role has its ARN":  {identity("aws", "x", "role-arn", roleARN, "region", "eu-west-1"), roleARN},
		"a client has its ID": {identity("azure", "x", "client-id", clientID, "tenant-id", tenantID), clientID},
		"an impersonated service account has its e-mail": {
			identity("gcp", "x", "workload-identity-provider", providerName, "service-account", email), email,
		},
		"direct federation has its provider": {identity("gcp", "x", "workload-identity-provider", providerName), providerName},
		"a plain token has its audience":     {identity("token", "vault"), "vault"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.identity.Principal(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// externalAccount is a credential configuration file as an SDK reads it.
type externalAccount struct {
	Type             string `json:"type"`
	Audience         string `json:"audience"`
	SubjectTokenType string `json:"subject_token_type"`
	TokenURL         string `json:"token_url"`
	ImpersonationURL string `json:"service_account_impersonation_url"`
	CredentialSource struct {
		File   string `json:"file"`
		Format struct {
			Type string `json:"type"`
		} `json:"format"`
	} `json:"credential_source"`
}

func parseCredentials(tb testing.TB, content string) externalAccount {
	tb.Helper()
	decoder := json.NewDecoder(strings.NewReader(content))
	decoder.DisallowUnknownFields()
	var file externalAccount
	if err := decoder.Decode(&file); err != nil {
		tb.Fatalf("credential file %s: %v", content, err)
	}
	return file
}

// The audience in the file is the provider; that of the token may differ.
func TestCredentialFileNamesTheProviderWhateverTheAudienceOfTheToken(t *testing.T) {
	t.Parallel()
	direct := identity("gcp", "openshift", "workload-identity-provider", providerName)
	injection := provider.NewInjection([]annotations.Identity{direct}, subject())
	file := parseCredentials(t, injection.Providers[0].File.Content)
	if want := "//iam.googleapis.com/" + providerName; file.Audience != want {
		t.Errorf("audience: got %q, want %q", file.Audience, want)
	}
	if got := injection.Providers[0].Token.Audience; got != "openshift" {
		t.Errorf("audience of the token: got %q, want openshift", got)
	}
	if file.ImpersonationURL != "" {
		t.Errorf("direct federation impersonates with %q", file.ImpersonationURL)
	}
}

// The content is in an annotation, which nothing expands.
func TestCredentialFileKeepsADollarSign(t *testing.T) {
	t.Parallel()
	odd := subject()
	odd.MountPath = "/var/run/$(HOME)/$$"
	injection := provider.NewInjection([]annotations.Identity{identity("gcp", "x", "workload-identity-provider", providerName)}, odd)
	if got, want := parseCredentials(t, injection.Providers[0].File.Content).CredentialSource.File, "/var/run/$(HOME)/$$/gcp/token"; got != want {
		t.Errorf("credential_source.file: got %q, want %q", got, want)
	}
	checkInjection(t, injection)
}

// expand models the kubelet's expansion of a value in which every variable is
// known and is "EXPANDED": $$ is a dollar sign, $(NAME) the variable, and any
// other dollar sign stands for itself.
func expand(value string) string {
	return reference.ReplaceAllStringFunc(value, func(match string) string {
		if match == "$$" {
			return "$"
		}
		return "EXPANDED"
	})
}

var reference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expanded returns the environment as a container sees it.
func expanded(injection *provider.Injection) map[string]string {
	environment := map[string]string{}
	for _, v := range variables(injection) {
		environment[v.Name] = expand(v.Value)
	}
	return environment
}

func variables(injection *provider.Injection) []annotations.Variable {
	var all []annotations.Variable
	for _, p := range injection.Providers {
		all = append(all, p.Variables...)
	}
	return all
}

func TestVariablesReachTheContainerUnchanged(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"a reference":                    "$(AWS_REGION)",
		"a doubled dollar sign":          "a$$b",
		"three dollar signs":             "$$$",
		"a dollar sign at the end":       "a$",
		"an escaped reference":           "$$(AWS_REGION)",
		"a reference that is not closed": "$(AWS_REGION",
		"a shell's variable":             "$AWS_REGION",
		"a reference in a reference":     "$($(A))",
		"no dollar sign":                 "a(b)c",
		"the name of another value":      "{token-file}",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			odd := subject()
			odd.MountPath = "/" + text
			identities := all()
			aws, azure, gcp := identities[0].Values, identities[1].Values, identities[2].Values
			aws["role-arn"] = "arn:aws:iam::111122223333:role/" + text + "/r"
			azure["authority-host"] = "https://example.com/" + text + "/"
			aws["region"], azure["tenant-id"], gcp["project"] = text, text, text
			want := map[string]string{
				"AWS_ROLE_ARN":                           "arn:aws:iam::111122223333:role/" + text + "/r",
				"AWS_WEB_IDENTITY_TOKEN_FILE":            "/" + text + "/aws/token",
				"AWS_ROLE_SESSION_NAME":                  "loki@team-a",
				"AWS_STS_REGIONAL_ENDPOINTS":             "regional",
				"AWS_REGION":                             text,
				"AWS_DEFAULT_REGION":                     text,
				"AZURE_CLIENT_ID":                        clientID,
				"AZURE_TENANT_ID":                        text,
				"AZURE_FEDERATED_TOKEN_FILE":             "/" + text + "/azure/token",
				"AZURE_AUTHORITY_HOST":                   "https://example.com/" + text + "/",
				"GOOGLE_APPLICATION_CREDENTIALS":         "/" + text + "/gcp/credentials.json",
				"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE": "/" + text + "/gcp/credentials.json",
				"GOOGLE_CLOUD_PROJECT":                   text,
				"CLOUDSDK_CORE_PROJECT":                  text,
				"LANYARD_TOKEN_FILE":                     "/" + text + "/token",
			}
			if diff := cmp.Diff(want, expanded(provider.NewInjection(identities, odd))); diff != "" {
				t.Errorf("environment after the kubelet's expansion (-want +got):\n%s", diff)
			}
		})
	}
}

var (
	sessionGrammar  = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	variableGrammar = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
)

// sessionName returns the session name of the ServiceAccount's pods.
func sessionName(namespace, serviceAccount string) string {
	s := subject()
	s.Namespace, s.ServiceAccount = namespace, serviceAccount
	injection := provider.NewInjection([]annotations.Identity{identity("aws", "x", "role-arn", roleARN)}, s)
	return expanded(injection)["AWS_ROLE_SESSION_NAME"]
}

func TestSTSAcceptsSessionNames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ namespace, serviceAccount, want string }{
		"the shortest names":             {"n", "s", "s@n"},
		"a name with dots":               {"team-a", "loki.v2.example", "loki.v2.example@team-a"},
		"64 characters stay as they are": {strings.Repeat("n", 32), strings.Repeat("s", 31), strings.Repeat("s", 31) + "@" + strings.Repeat("n", 32)},
		"65 characters are cut":          {strings.Repeat("n", 32), strings.Repeat("s", 32), ""},
		"the longest names":              {strings.Repeat("n", 63), strings.Repeat("s.", 126) + "s", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sessionName(tt.namespace, tt.serviceAccount)
			if !sessionGrammar.MatchString(got) {
				t.Errorf("%q is not a session name", got)
			}
			whole := tt.serviceAccount + "@" + tt.namespace
			switch {
			case tt.want != "" && got != tt.want:
				t.Errorf("got %q, want %q", got, tt.want)
			case tt.want == "" && (len(got) != 64 || !strings.HasPrefix(got, whole[:40])):
				t.Errorf("got %q, want 64 characters with the start of %q", got, whole)
			}
			if again := sessionName(tt.namespace, tt.serviceAccount); again != got {
				t.Errorf("got %q the first time and %q the second", got, again)
			}
		})
	}
}

func TestANameOfAPodThatSTSDeniesIsNotASessionName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"": true, "p": false, "pp": true, strings.Repeat("p", 64): true, strings.Repeat("p", 65): false, strings.Repeat("p", 253): false} {
		if got := provider.PodNameFits(name); got != want {
			t.Errorf("%q: got %t", name, got)
		}
		if want && name != "" && !sessionGrammar.MatchString(name) {
			t.Errorf("%q is not a session name", name)
		}
	}
}

func TestSessionNameBelongsToOneServiceAccount(t *testing.T) {
	t.Parallel()
	longNamespace, long := strings.Repeat("n", 63), strings.Repeat("s", 200)
	cut := sessionName(longNamespace, "loki")
	_, lookalike, _ := strings.Cut(cut, "@")
	tests := map[string][2][2]string{
		"a dash in one name or in the other":          {{"a-b", "c"}, {"a", "b-c"}},
		"the names swapped":                           {{"a", "b"}, {"b", "a"}},
		"long ServiceAccounts that differ at the end": {{"ns", long + "a"}, {"ns", long + "b"}},
		"long namespaces that differ at the end":      {{longNamespace[1:] + "a", "loki"}, {longNamespace[1:] + "b", "loki"}},
		"a long ServiceAccount in two namespaces":     {{"ns-1", long}, {"ns-2", long}},
	}
	// If the part after the "@" of a truncated name could be a namespace, users who may
	// create namespaces could get the session names of others.
	if len(validation.IsDNS1123Label(lookalike)) == 0 {
		tests["a namespace with the name of what is left of another"] = [2][2]string{{longNamespace, "loki"}, {lookalike, "loki"}}
	}
	for name, accounts := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := sessionName(accounts[0][0], accounts[0][1]), sessionName(accounts[1][0], accounts[1][1])
			if first == second {
				t.Errorf("%q and %q share the session name %q", accounts[0], accounts[1], first)
			}
		})
	}
}

func TestHashIsEqualIfNothingDiffers(t *testing.T) {
	t.Parallel()
	first := provider.NewInjection(all(), subject())
	for range 100 {
		if diff := cmp.Diff(first, provider.NewInjection(all(), subject())); diff != "" {
			t.Fatalf("the same identities result in another injection:\n%s", diff)
		}
	}
}

// checkInjection checks properties of every injection.
func checkInjection(tb testing.TB, injection *provider.Injection) {
	tb.Helper()
	paths := map[string]bool{}
	addPath := func(path string) {
		// The API server does not check that the paths of two sources differ.
		if paths[path] || path == "" || strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") {
			tb.Errorf("path %q: want relative paths, each once", path)
		}
		paths[path] = true
	}
	for _, p := range injection.Providers {
		if !slices.ContainsFunc(provider.Builtin(), func(d *annotations.Provider) bool { return d.Name == p.Name }) {
			tb.Errorf("provider %q is not built in", p.Name)
		}
		if p.Token.Audience == "" {
			tb.Errorf("%s: the audience is empty, which stands for that of the API server", p.Name)
		}
		if !slices.ContainsFunc(p.Variables, func(v annotations.Variable) bool { return v.Credential }) {
			tb.Errorf("%s: no variable points to the token", p.Name)
		}
		addPath(p.Token.Path)
		if p.File != (provider.File{}) {
			addPath(p.File.Path)
		}
		if p.File.Path == "gcp/credentials.json" {
			file := parseCredentials(tb, p.File.Content)
			if file.Type != "external_account" || file.TokenURL == "" || file.CredentialSource.Format.Type != "text" {
				tb.Errorf("%s: credential file %s: want an external account with a token_url and the format text", p.Name, p.File.Content)
			}
		}
	}
	names := map[string]bool{}
	for _, v := range variables(injection) {
		if !variableGrammar.MatchString(v.Name) {
			tb.Errorf("variable %q: want %s", v.Name, variableGrammar)
		}
		if v.Value == "" {
			tb.Errorf("variable %s is empty", v.Name)
		}
		if names[v.Name] {
			tb.Errorf("variable %s is set twice", v.Name)
		}
		if strings.Contains(expand(v.Value), "EXPANDED") {
			tb.Errorf("variable %s: the kubelet would expand %q", v.Name, v.Value)
		}
		names[v.Name] = true
	}
}
