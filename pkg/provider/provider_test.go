// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

const (
	roleARN      = "arn:aws:iam::111122223333:role/logs"
	clientID     = "01234567-89ab-cdef-0123-456789abcdef"
	tenantID     = "fedcba98-7654-3210-fedc-ba9876543210"
	email        = "reader@my-project.iam.gserviceaccount.com"
	providerName = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-k8s"

	mountPath = "/var/run/secrets/lanyard.dev/serviceaccount"
)

func settings() *provider.Settings {
	return &provider.Settings{
		TokenMountPath:     provider.DefaultTokenMountPath,
		AzureAuthorityHost: provider.DefaultAzureAuthorityHost,
	}
}

func subject() *provider.Subject {
	return &provider.Subject{Namespace: "team-a", ServiceAccount: "loki", TokenExpirationSeconds: 3600}
}

// allThree asks for every cloud, with all that can be said about each.
func allThree() *annotations.Identity {
	return &annotations.Identity{
		AWS:   &annotations.AWS{RoleARN: roleARN, Region: "eu-central-1", Audience: "sts.amazonaws.com"},
		Azure: &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: "api://AzureADTokenExchange"},
		GCP: &annotations.GCP{
			WorkloadIdentityProvider: providerName, ServiceAccount: email, Project: "my-project",
			Audience: "https://iam.googleapis.com/" + providerName,
		},
	}
}

func plain() *annotations.Identity {
	return &annotations.Identity{Plain: &annotations.Plain{Audience: "openshift"}}
}

func TestNewGivesEachProviderItsTokensFilesAndVariables(t *testing.T) {
	t.Parallel()
	const directFile = `{"type":"external_account","audience":"//iam.googleapis.com/` + providerName + `",` +
		`"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.googleapis.com/v1/token",` +
		`"credential_source":{"file":"` + mountPath + `/gcp/token","format":{"type":"text"}}}`
	awsShadowing := []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE",
		"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	}
	tests := map[string]struct {
		identity *annotations.Identity
		want     []provider.Provider
	}{
		"AWS without a region sets no region": {
			identity: &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Audience: "sts.amazonaws.com"}},
			want: []provider.Provider{{
				Name:  "aws",
				Token: provider.Token{Audience: "sts.amazonaws.com", ExpirationSeconds: 3600, Path: "aws/token"},
				Credentials: []provider.Variable{
					{Name: "AWS_ROLE_ARN", Value: roleARN},
					{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: mountPath + "/aws/token"},
				},
				Settings: [][]provider.Variable{
					{{Name: "AWS_ROLE_SESSION_NAME", Value: "loki@team-a"}},
					{{Name: "AWS_STS_REGIONAL_ENDPOINTS", Value: "regional"}},
				},
				Shadowing: awsShadowing,
			}},
		},
		"AWS with a region sets both variables of it together": {
			identity: &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Region: "eu-central-1", Audience: "mine"}},
			want: []provider.Provider{{
				Name:  "aws",
				Token: provider.Token{Audience: "mine", ExpirationSeconds: 3600, Path: "aws/token"},
				Credentials: []provider.Variable{
					{Name: "AWS_ROLE_ARN", Value: roleARN},
					{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: mountPath + "/aws/token"},
				},
				Settings: [][]provider.Variable{
					{{Name: "AWS_ROLE_SESSION_NAME", Value: "loki@team-a"}},
					{{Name: "AWS_STS_REGIONAL_ENDPOINTS", Value: "regional"}},
					{{Name: "AWS_REGION", Value: "eu-central-1"}, {Name: "AWS_DEFAULT_REGION", Value: "eu-central-1"}},
				},
				Shadowing: awsShadowing,
			}},
		},
		"Azure always sets the authority": {
			identity: &annotations.Identity{Azure: &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: "api://AzureADTokenExchange"}},
			want: []provider.Provider{{
				Name:  "azure",
				Token: provider.Token{Audience: "api://AzureADTokenExchange", ExpirationSeconds: 3600, Path: "azure/token"},
				Credentials: []provider.Variable{
					{Name: "AZURE_CLIENT_ID", Value: clientID},
					{Name: "AZURE_TENANT_ID", Value: tenantID},
					{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: mountPath + "/azure/token"},
				},
				Settings: [][]provider.Variable{
					{{Name: "AZURE_AUTHORITY_HOST", Value: "https://login.microsoftonline.com/"}},
				},
				Shadowing: []string{
					"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_USERNAME", "AZURE_PASSWORD",
				},
			}},
		},
		"Google's direct federation without a project": {
			identity: &annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "https://iam.googleapis.com/" + providerName}},
			want: []provider.Provider{{
				Name:           "gcp",
				Token:          provider.Token{Audience: "https://iam.googleapis.com/" + providerName, ExpirationSeconds: 3600, Path: "gcp/token"},
				CredentialFile: provider.File{Path: "gcp/credentials.json", Content: directFile},
				Credentials: []provider.Variable{
					{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: mountPath + "/gcp/credentials.json"},
					{Name: "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Value: mountPath + "/gcp/credentials.json"},
				},
			}},
		},
		"Google's impersonation with a project": {
			identity: &annotations.Identity{GCP: &annotations.GCP{
				WorkloadIdentityProvider: providerName, ServiceAccount: email, Project: "my-project", Audience: "mine",
			}},
			want: []provider.Provider{{
				Name:  "gcp",
				Token: provider.Token{Audience: "mine", ExpirationSeconds: 3600, Path: "gcp/token"},
				CredentialFile: provider.File{
					Path: "gcp/credentials.json",
					Content: strings.TrimSuffix(directFile, "}") +
						`,"service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/` + email + `:generateAccessToken"}`,
				},
				Credentials: []provider.Variable{
					{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: mountPath + "/gcp/credentials.json"},
					{Name: "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Value: mountPath + "/gcp/credentials.json"},
				},
				Settings: [][]provider.Variable{
					{{Name: "GOOGLE_CLOUD_PROJECT", Value: "my-project"}, {Name: "CLOUDSDK_CORE_PROJECT", Value: "my-project"}},
				},
			}},
		},
		"a plain token": {
			identity: plain(),
			want: []provider.Provider{{
				Name:        "token",
				Token:       provider.Token{Audience: "openshift", ExpirationSeconds: 3600, Path: "token"},
				Credentials: []provider.Variable{{Name: "LANYARD_TOKEN_FILE", Value: mountPath + "/token"}},
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			injection := provider.New(settings(), tt.identity, subject())
			if diff := cmp.Diff(tt.want, injection.Providers); diff != "" {
				t.Errorf("providers (-want +got):\n%s", diff)
			}
			if injection.MountPath != mountPath {
				t.Errorf("mount path: got %q, want %q", injection.MountPath, mountPath)
			}
			checkInjection(t, injection)
		})
	}
}

func TestNewGivesProvidersSortedByName(t *testing.T) {
	t.Parallel()
	identity := allThree()
	identity.Plain = plain().Plain
	injection := provider.New(settings(), identity, subject())
	var names []string
	for _, p := range injection.Providers {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff(provider.Names(), names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if !slices.IsSorted(provider.Names()) {
		t.Errorf("names %q are not sorted", provider.Names())
	}
	checkInjection(t, injection)
}

func TestNewGivesWindowsItsPaths(t *testing.T) {
	t.Parallel()
	windows := subject()
	windows.Windows = true
	identity := allThree()
	identity.Plain = plain().Plain
	injection := provider.New(settings(), identity, windows)

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
		if p.CredentialFile.Path == "" {
			continue
		}
		if got := parseCredentials(t, p.CredentialFile.Content).CredentialSource.File; got != front+`gcp\token` {
			t.Errorf("credential_source.file: got %q, want %q", got, front+`gcp\token`)
		}
	}
	if injection.MountPath != mountPath {
		t.Errorf("mount path: got %q, want %q, whose slashes the kubelet turns", injection.MountPath, mountPath)
	}
	checkInjection(t, injection)
}

func TestNewFollowsTheTokenMountPath(t *testing.T) {
	t.Parallel()
	openshift := settings()
	openshift.TokenMountPath = "/var/run/secrets/openshift/serviceaccount"
	injection := provider.New(openshift, plain(), subject())
	if got, want := expanded(injection)["LANYARD_TOKEN_FILE"], "/var/run/secrets/openshift/serviceaccount/token"; got != want {
		t.Errorf("LANYARD_TOKEN_FILE: got %q, want %q", got, want)
	}
	if injection.MountPath != openshift.TokenMountPath {
		t.Errorf("mount path: got %q, want %q", injection.MountPath, openshift.TokenMountPath)
	}
}

func TestNewGivesTheRequestedLifetimeToEveryToken(t *testing.T) {
	t.Parallel()
	day := subject()
	day.TokenExpirationSeconds = 86400
	identity := allThree()
	identity.Plain = plain().Plain
	for _, p := range provider.New(settings(), identity, day).Providers {
		if p.Token.ExpirationSeconds != 86400 {
			t.Errorf("%s: got %d, want 86400", p.Name, p.Token.ExpirationSeconds)
		}
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

// The file's audience is the provider; the token's is a setting of its own.
func TestCredentialFileNamesTheProviderWhateverTheTokensAudience(t *testing.T) {
	t.Parallel()
	identity := &annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "openshift"}}
	injection := provider.New(settings(), identity, subject())
	file := parseCredentials(t, injection.Providers[0].CredentialFile.Content)
	if want := "//iam.googleapis.com/" + providerName; file.Audience != want {
		t.Errorf("audience: got %q, want %q", file.Audience, want)
	}
	if got := injection.Providers[0].Token.Audience; got != "openshift" {
		t.Errorf("token's audience: got %q, want openshift", got)
	}
	if file.ImpersonationURL != "" {
		t.Errorf("direct federation impersonates by %q", file.ImpersonationURL)
	}
}

// The content stands in an annotation, which nothing expands.
func TestCredentialFileKeepsADollarSignAsItIs(t *testing.T) {
	t.Parallel()
	odd := settings()
	odd.TokenMountPath = "/var/run/$(HOME)/$$"
	injection := provider.New(odd, &annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "x"}}, subject())
	if got, want := parseCredentials(t, injection.Providers[0].CredentialFile.Content).CredentialSource.File, "/var/run/$(HOME)/$$/gcp/token"; got != want {
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

// expanded gives the environment as a container sees it.
func expanded(injection *provider.Injection) map[string]string {
	environment := map[string]string{}
	for _, v := range variables(injection) {
		environment[v.Name] = expand(v.Value)
	}
	return environment
}

func variables(injection *provider.Injection) []provider.Variable {
	var all []provider.Variable
	for _, p := range injection.Providers {
		all = append(all, p.Credentials...)
		for _, group := range p.Settings {
			all = append(all, group...)
		}
	}
	return all
}

func TestVariablesReachTheContainerAsTheyAreMeant(t *testing.T) {
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
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			odd := settings()
			odd.TokenMountPath = "/" + text
			odd.AzureAuthorityHost = "https://example.com/" + text + "/"
			identity := allThree()
			identity.AWS.RoleARN = "arn:aws:iam::111122223333:role/" + text + "/r"
			identity.AWS.Region, identity.Azure.TenantID, identity.GCP.Project = text, text, text
			identity.Plain = plain().Plain
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
			if diff := cmp.Diff(want, expanded(provider.New(odd, identity, subject()))); diff != "" {
				t.Errorf("environment after the kubelet's expansion (-want +got):\n%s", diff)
			}
		})
	}
}

var (
	sessionGrammar  = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	variableGrammar = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
	hashGrammar     = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// sessionName gives the session name of a pod of the account.
func sessionName(namespace, serviceAccount string) string {
	s := provider.Subject{Namespace: namespace, ServiceAccount: serviceAccount, TokenExpirationSeconds: 3600}
	injection := provider.New(settings(), &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Audience: "x"}}, &s)
	return expanded(injection)["AWS_ROLE_SESSION_NAME"]
}

func TestSessionNameIsWhatSTSAccepts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ namespace, serviceAccount, want string }{
		"the shortest names":               {"n", "s", "s@n"},
		"a name with dots":                 {"team-a", "loki.v2.example", "loki.v2.example@team-a"},
		"64 characters stay as they are":   {strings.Repeat("n", 32), strings.Repeat("s", 31), strings.Repeat("s", 31) + "@" + strings.Repeat("n", 32)},
		"65 characters are cut":            {strings.Repeat("n", 32), strings.Repeat("s", 32), ""},
		"the longest names that there are": {strings.Repeat("n", 63), strings.Repeat("s.", 126) + "s", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sessionName(tt.namespace, tt.serviceAccount)
			if !sessionGrammar.MatchString(got) {
				t.Errorf("%q is no session name", got)
			}
			whole := tt.serviceAccount + "@" + tt.namespace
			switch {
			case tt.want != "" && got != tt.want:
				t.Errorf("got %q, want %q", got, tt.want)
			case tt.want == "" && (len(got) != 64 || !strings.HasPrefix(got, whole[:40])):
				t.Errorf("got %q, want 64 characters that begin like %q", got, whole)
			}
			if again := sessionName(tt.namespace, tt.serviceAccount); again != got {
				t.Errorf("got %q the first time and %q the second", got, again)
			}
		})
	}
}

func TestSessionNameIsOneAccounts(t *testing.T) {
	t.Parallel()
	longNamespace, long := strings.Repeat("n", 63), strings.Repeat("s", 200)
	cut := sessionName(longNamespace, "loki")
	_, lookalike, _ := strings.Cut(cut, "@")
	tests := map[string][2][2]string{
		"a dash in the one name or in the other": {{"a-b", "c"}, {"a", "b-c"}},
		"the names exchanged":                    {{"a", "b"}, {"b", "a"}},
		"long accounts that differ at the end":   {{"ns", long + "a"}, {"ns", long + "b"}},
		"long namespaces that differ at the end": {{longNamespace[1:] + "a", "loki"}, {longNamespace[1:] + "b", "loki"}},
		"a long account in two namespaces":       {{"ns-1", long}, {"ns-2", long}},
	}
	// Whoever may name a namespace could take a cut name for its own, were all
	// that follows the "@" a name.
	if len(validation.IsDNS1123Label(lookalike)) == 0 {
		tests["a namespace that is named like what is left of another"] = [2][2]string{{longNamespace, "loki"}, {lookalike, "loki"}}
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

func TestHashIsEqualWhereNothingDiffers(t *testing.T) {
	t.Parallel()
	first := provider.New(settings(), allThree(), subject())
	for range 100 {
		if diff := cmp.Diff(first, provider.New(settings(), allThree(), subject())); diff != "" {
			t.Fatalf("the same identity gives another injection:\n%s", diff)
		}
	}
	if !hashGrammar.MatchString(first.Hash) {
		t.Errorf("hash %q is not 16 hexadecimal digits", first.Hash)
	}
	const want = "e1b78e84325d2fac"
	if first.Hash != want {
		t.Errorf("hash: got %s, want %s; pods that were injected before would seem to be out of date", first.Hash, want)
	}
}

func TestHashDiffersWhereAnythingDiffers(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*provider.Settings, *annotations.Identity, *provider.Subject){
		"nothing":              func(*provider.Settings, *annotations.Identity, *provider.Subject) {},
		"the mount path":       func(s *provider.Settings, _ *annotations.Identity, _ *provider.Subject) { s.TokenMountPath += "x" },
		"the authority":        func(s *provider.Settings, _ *annotations.Identity, _ *provider.Subject) { s.AzureAuthorityHost += "x/" },
		"the account":          func(_ *provider.Settings, _ *annotations.Identity, s *provider.Subject) { s.ServiceAccount += "x" },
		"the namespace":        func(_ *provider.Settings, _ *annotations.Identity, s *provider.Subject) { s.Namespace += "x" },
		"the lifetime":         func(_ *provider.Settings, _ *annotations.Identity, s *provider.Subject) { s.TokenExpirationSeconds++ },
		"the operating system": func(_ *provider.Settings, _ *annotations.Identity, s *provider.Subject) { s.Windows = true },
		"no AWS":               func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.AWS = nil },
		"the role":             func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.AWS.RoleARN += "x" },
		"the region":           func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.AWS.Region = "eu-west-1" },
		"no region":            func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.AWS.Region = "" },
		"AWS's audience":       func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.AWS.Audience += "x" },
		"no Azure":             func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.Azure = nil },
		"the client":           func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.Azure.ClientID += "x" },
		"the tenant":           func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.Azure.TenantID += "x" },
		"client and tenant swapped": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) {
			i.Azure.ClientID, i.Azure.TenantID = i.Azure.TenantID, i.Azure.ClientID
		},
		"Azure's audience": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.Azure.Audience += "x" },
		"no Google":        func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.GCP = nil },
		"the provider": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) {
			i.GCP.WorkloadIdentityProvider += "x"
		},
		"the impersonated account": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) {
			i.GCP.ServiceAccount = "x" + email
		},
		"direct federation": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.GCP.ServiceAccount = "" },
		"the project":       func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.GCP.Project += "x" },
		"no project":        func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.GCP.Project = "" },
		"Google's audience": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { i.GCP.Audience += "x" },
		"a plain token":     func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { *i = *plain() },
		"a plain token's audience": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) {
			*i = annotations.Identity{Plain: &annotations.Plain{Audience: "vault"}}
		},
		"nobody": func(_ *provider.Settings, i *annotations.Identity, _ *provider.Subject) { *i = annotations.Identity{} },
	}
	whose := map[string]string{} // hash to sentence
	for name, change := range tests {
		s, i, p := settings(), allThree(), subject()
		change(s, i, p)
		hash := provider.New(s, i, p).Hash
		if other, found := whose[hash]; found {
			t.Errorf("%q and %q have the hash %s", name, other, hash)
		}
		whose[hash] = name
	}
}

// What is not injected does not count: an Azure pod is not out of date because
// of AWS's session name.
func TestHashIsEqualWhereOnlyWhatIsNotInjectedDiffers(t *testing.T) {
	t.Parallel()
	identity := allThree()
	identity.AWS = nil
	other := subject()
	other.Namespace, other.ServiceAccount = "team-b", "tempo"
	first, second := provider.New(settings(), identity, subject()), provider.New(settings(), identity, other)
	if first.Hash != second.Hash {
		t.Errorf("got %s and %s, want one hash", first.Hash, second.Hash)
	}
}

// Hashes of the same text, cut at other places.
func TestHashTellsFieldsApart(t *testing.T) {
	t.Parallel()
	first := &annotations.Identity{Azure: &annotations.Azure{ClientID: "ab", TenantID: "c", Audience: "x"}}
	second := &annotations.Identity{Azure: &annotations.Azure{ClientID: "a", TenantID: "bc", Audience: "x"}}
	if a, b := provider.New(settings(), first, subject()).Hash, provider.New(settings(), second, subject()).Hash; a == b {
		t.Errorf("both have the hash %s", a)
	}
}

// checkInjection holds what is true of every injection.
func checkInjection(tb testing.TB, injection *provider.Injection) {
	tb.Helper()
	if !hashGrammar.MatchString(injection.Hash) {
		tb.Errorf("hash %q is not 16 hexadecimal digits", injection.Hash)
	}
	paths := map[string]bool{}
	addPath := func(path string) {
		// The apiserver does not look for one path in two sources.
		if paths[path] || path == "" || strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") {
			tb.Errorf("path %q: want relative paths, each once", path)
		}
		paths[path] = true
	}
	for _, p := range injection.Providers {
		if !slices.Contains(provider.Names(), p.Name) {
			tb.Errorf("provider %q is none of %q", p.Name, provider.Names())
		}
		if p.Token.Audience == "" {
			tb.Errorf("%s: the audience is empty, which is the apiserver's own", p.Name)
		}
		if len(p.Credentials) == 0 {
			tb.Errorf("%s: no variable leads to the token", p.Name)
		}
		addPath(p.Token.Path)
		if p.CredentialFile != (provider.File{}) {
			addPath(p.CredentialFile.Path)
			file := parseCredentials(tb, p.CredentialFile.Content)
			if file.Type != "external_account" || file.TokenURL == "" || file.CredentialSource.Format.Type != "text" {
				tb.Errorf("%s: credential file %s: want an external account with a token_url and the format text", p.Name, p.CredentialFile.Content)
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
			tb.Errorf("variable %s is there twice", v.Name)
		}
		if strings.Contains(expand(v.Value), "EXPANDED") {
			tb.Errorf("variable %s: the kubelet would expand %q", v.Name, v.Value)
		}
		names[v.Name] = true
	}
}
