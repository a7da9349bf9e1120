// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// gcp is Workload Identity Federation, direct or through a service account.
func gcp() *annotations.Provider {
	return &annotations.Provider{
		Name: "gcp",
		Parameters: []annotations.Parameter{
			{
				Name: "workload-identity-provider", Identity: true, Required: true, MaxBytes: 256, Grammar: gcpProviderGrammar(),
				Flag:  "gcp-default-workload-identity-provider",
				Usage: "Default workload identity provider of ServiceAccounts: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.",
			},
			gcpServiceAccount(),
			{Name: "project", MaxBytes: 320, Grammar: annotations.Matching(gcpProject, wantGCPProject)},
			{
				Name: "default-project", ClusterOnly: true, MaxBytes: 320, Grammar: annotations.Matching(gcpProject, wantGCPProject),
				Flag: "gcp-default-project", Usage: "Project ID of service accounts that an annotation names without a domain. Also the default of GOOGLE_CLOUD_PROJECT for ServiceAccounts without a service account.",
			},
			{
				Name: "universe-domain", ClusterOnly: true, MaxBytes: 253, Grammar: annotations.Matching(gcpUniverse, "must be a domain, such as googleapis.com"),
				Flag: "gcp-universe-domain", Usage: "Domain of the APIs of a Google partner cloud. Defaults to googleapis.com.",
			},
			{
				Name: "impersonation-lifetime-seconds", ClusterOnly: true, MaxBytes: 5, Parse: parseGCPLifetime,
				Flag: "gcp-impersonation-lifetime-seconds", Usage: "Lifetime in seconds of the tokens of impersonated service accounts, 600 to 43200. Defaults to 3600. A longer one needs an organization policy.",
			},
			annotations.TokenPath(),
		},
		PrincipalParameters: []string{"service-account", "workload-identity-provider"},
		DefaultAudience:     "https://iam.googleapis.com/{workload-identity-provider}",
		MaxAudienceBytes:    256, // of a provider's allowed audience
		TokenPath:           "gcp/token",
		CopyVolume:          "gcp-iam-token", // of gcp-workload-identity-federation-webhook
		CredentialFile:      &annotations.CredentialFile{Annotation: "gcp-credentials", Path: "gcp/credentials.json", Content: externalAccount, Read: readExternalAccount},
		Variables: []annotations.Variable{
			{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "{credential-file}", Credential: true},
			// gcloud and bq do not read the variable above.
			{Name: "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Value: "{credential-file}", Credential: true},
			// The file contains no project. Without a variable, Python and JavaScript ask the
			// resource manager, then the metadata server.
			{Name: "GOOGLE_CLOUD_PROJECT", Value: "{project}", Group: "project"},
			{Name: "CLOUDSDK_CORE_PROJECT", Value: "{project}", Group: "project"},
			// Go's libraries, gcloud and the generated clients of Python read one of these. The
			// other libraries read the file.
			{Name: "GOOGLE_CLOUD_UNIVERSE_DOMAIN", Value: "{universe-domain}"},
			{Name: "CLOUDSDK_CORE_UNIVERSE_DOMAIN", Value: "{universe-domain}"},
		},
		// JavaScript reads GCLOUD_PROJECT first, and Python and Java read it second. JavaScript
		// also reads both names in lower case, and Cloud Functions set GCP_PROJECT. Sources:
		// google-auth-library, googleauth.ts; google-auth, _default.py and environment_vars.py.
		Synonyms: map[string][]string{"project": {"GCLOUD_PROJECT", "GCP_PROJECT", "gcloud_project", "google_cloud_project"}},
		// gcloud reads these: googlecloudsdk/core/credentials/store.py.
		Shadows: unlessEmpty("CLOUDSDK_AUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"),
		Derive: func(v annotations.Values) {
			v["project"] = cmp.Or(v["project"], GCPProjectOf(v["service-account"]), v["default-project"])
		},
	}
}

// externalAccount returns a credential configuration file (AIP-4117). Its audience is the
// provider's name, which may differ from the token's audience, and is the same in each
// universe.
func externalAccount(v annotations.Values, _ []annotations.Profile) string {
	quoted := func(text string) string {
		encoded, _ := json.Marshal(text) // a string is always encoded
		return string(encoded)
	}
	universe := cmp.Or(v["universe-domain"], "googleapis.com")
	text := `{"type":"external_account","audience":` + quoted("//iam.googleapis.com/"+v["workload-identity-provider"]) +
		`,"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":` + quoted("https://sts."+universe+"/v1/token") +
		`,"credential_source":{"file":` + quoted(v["token-file"]) + `,"format":{"type":"text"}}`
	if email := v["service-account"]; email != "" {
		text += `,"service_account_impersonation_url":` +
			quoted("https://iamcredentials."+universe+"/v1/projects/-/serviceAccounts/"+email+":generateAccessToken")
		if seconds := v["impersonation-lifetime-seconds"]; seconds != "" {
			text += `,"service_account_impersonation":{"token_lifetime_seconds":` + seconds + "}"
		}
	}
	if universe != "googleapis.com" {
		text += `,"universe_domain":` + quoted(universe)
	}
	return text + "}"
}

// readExternalAccount returns the identity in a credential configuration file.
func readExternalAccount(text string) annotations.Values {
	var file struct {
		Audience      string `json:"audience"`
		Impersonation string `json:"service_account_impersonation_url"`
		Universe      string `json:"universe_domain"`
		Source        struct {
			File string `json:"file"`
		} `json:"credential_source"`
	}
	if json.Unmarshal([]byte(text), &file) != nil || file.Audience == "" {
		return nil
	}
	_, provider, _ := strings.Cut(file.Audience, "//iam.googleapis.com/")
	_, email, _ := strings.Cut(file.Impersonation, "/serviceAccounts/")
	email, _, _ = strings.Cut(email, ":")
	return annotations.Values{
		"workload-identity-provider": provider, "service-account": email, "universe-domain": file.Universe, "token-file": file.Source.File,
	}
}

// wantGCPProject completes the sentence about a project ID, not a number.
const wantGCPProject = "must be a project ID of 6 to 30 characters, such as my-project-123"

var (
	gcpProvider = regexp.MustCompile(`^projects/([0-9]{1,20})/locations/global/workloadIdentityPools/([a-z0-9-]{4,32})/providers/([a-z0-9-]{4,32})$`)
	// Names that Google reserves for pools and providers.
	gcpReservedID = regexp.MustCompile(`/(workloadIdentityPools|providers)/gcp-`)
	gcpUniverse   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)
	gcpProject    = regexp.MustCompile(`^([a-z0-9-]+(\.[a-z0-9-]+)*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$`)

	// A service account that a user created. Its project may belong to a domain or to a
	// partner cloud.
	gcpUserServiceAccount = regexp.MustCompile(`^[a-z][a-z0-9-]{4,28}[a-z0-9]@([a-z][a-z0-9-]{4,28}[a-z0-9])((?:\.[a-z0-9-]+)*)\.iam\.gserviceaccount\.com$`)
	gcpAppEngine          = regexp.MustCompile(`^([a-z][a-z0-9-]{4,28}[a-z0-9])@appspot\.gserviceaccount\.com$`)
	gcpComputeEngine      = regexp.MustCompile(`^[0-9]{1,20}-compute@developer\.gserviceaccount\.com$`)
	// The same in the clouds of Google's partners, such as s3ns-system (S3NS, "Key
	// differences").
	gcpPartnerCompute = regexp.MustCompile(`^[0-9]{1,20}-compute@developer\.[a-z0-9-]+\.iam\.gserviceaccount\.com$`)
)

// GCPProviderParts returns the number of the project, the pool and the provider in the
// full name of a workload identity provider. It reports false for any other text.
func GCPProviderParts(name string) (number, pool, provider string, ok bool) {
	match := gcpProvider.FindStringSubmatch(name)
	if match == nil {
		return "", "", "", false
	}
	return match[1], match[2], match[3], true
}

// gcpProviderGrammar accepts the resource name of a workload identity pool provider, with or
// without the service name as a prefix.
func gcpProviderGrammar() annotations.Grammar {
	return annotations.Grammar{
		Prefixes: []string{"https://iam.googleapis.com/", "//iam.googleapis.com/"},
		Checks: []annotations.Check{{
			AnyOf: []*regexp.Regexp{gcpProvider}, NoneOf: []*regexp.Regexp{gcpReservedID},
			Want: `must be projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER, with or without //iam.googleapis.com/ or https://iam.googleapis.com/ in front; pool and provider have 4 to 32 of a-z, 0-9 and "-" and do not begin with "gcp-"`,
		}},
	}
}

// gcpServiceAccount returns the parameter for the e-mail of a Google service account.
func gcpServiceAccount() annotations.Parameter {
	return annotations.Parameter{
		Name: "service-account", Identity: true, MaxBytes: 320, Expand: expandGCPServiceAccount,
		Grammar: annotations.Grammar{Checks: []annotations.Check{{
			AnyOf: []*regexp.Regexp{gcpUserServiceAccount, gcpAppEngine, gcpComputeEngine, gcpPartnerCompute},
			Want:  "must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com",
		}}},
	}
}

// parseGCPLifetime accepts the lifetime of a service account's token, in seconds.
func parseGCPLifetime(value string) (string, error) {
	if seconds, err := strconv.Atoi(value); err != nil || seconds < 600 || seconds > 43200 || strconv.Itoa(seconds) != value {
		return "", errors.New("must be a number of seconds, 600 to 43200")
	}
	return value, nil
}

// expandGCPServiceAccount returns the e-mail of a service account, for its name. In an e-mail, the
// parts of a domain-scoped project (example.com:project) or of a partner's project (s3ns:project)
// are in reverse order.
func expandGCPServiceAccount(value string, cluster func(string) string) string {
	project := cluster("default-project")
	if value == "" || project == "" || strings.Contains(value, "@") {
		return value
	}
	if domain, id, found := strings.Cut(project, ":"); found {
		project = id + "." + domain
	}
	return value + "@" + project + ".iam.gserviceaccount.com"
}

// GCPProjectOf returns the ID of the project that a service account belongs to, or
// "" if its e-mail does not contain it.
func GCPProjectOf(email string) string {
	if match := gcpUserServiceAccount.FindStringSubmatch(email); match != nil {
		project, domain := match[1], strings.TrimPrefix(match[2], ".")
		if domain != "" {
			// sa@project.example.com.iam... belongs to example.com:project.
			return domain + ":" + project
		}
		return project
	}
	if match := gcpAppEngine.FindStringSubmatch(email); match != nil {
		return match[1]
	}
	return ""
}
