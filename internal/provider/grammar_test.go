// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"
)

// grammar is what the values of one parameter look like.
type grammar struct {
	provider, parameter string
	accepted            map[string]accepted
	denied              map[string]string
	message             string
}

// accepted is a value and its one spelling; an empty want stands for the value.
type accepted struct{ value, want string }

const (
	emptyARN     = "arn:aws:iam::111122223333:role/"
	providerName = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-k8s"
)

// roleInPath returns the ARN of a role in a path of n characters, with the
// slashes at both ends.
func roleInPath(n int) string {
	return emptyARN + strings.Repeat("p", n-len("//")) + "/r"
}

// tokenPathGrammar is that of the path of a copy, the same for each provider.
func tokenPathGrammar(provider string) grammar {
	return grammar{
		provider: provider, parameter: TokenPathParameter,
		accepted: map[string]accepted{
			"a file in a directory":    {value: "/a/b"},
			"a hidden file":            {value: "/var/run/secrets/..data/.token_1-2"},
			"a path of 256 characters": {value: "/a/" + strings.Repeat("x", 253)},
		},
		denied: map[string]string{
			"nothing":            "",
			"relative":           "a/b",
			"a file at the root": "/token",
			"a directory":        "/a/b/",
			"with two slashes":   "/a//b",
			"with dots":          "/a/../b/c",
			"with a dot":         "/a/./b",
			"with a colon":       "/a:b/c",
			"with a quote":       `/a"/b`,
			"with a space":       "/a b/c",
			"of 257 characters":  "/a/" + strings.Repeat("x", 254),
			"with a line break":  "/a/b\n",
		},
		message: `must be the absolute path of a file in a directory, such as /var/run/secrets/example/token, of a-z, A-Z, 0-9, ".", "_" and "-" between single slashes`,
	}
}

var grammars = map[string]grammar{
	"the path of a copy for AWS":    tokenPathGrammar("aws"),
	"the path of a copy for Azure":  tokenPathGrammar("azure"),
	"the path of a copy for Google": tokenPathGrammar("gcp"),
	"an AWS role ARN": {
		provider: "aws", parameter: "role-arn",
		accepted: map[string]accepted{
			"the shortest name":                   {value: "arn:aws:iam::111122223333:role/r"},
			"a name of 64 characters":             {value: "arn:aws:iam::111122223333:role/" + strings.Repeat("r", 64)},
			"every character of a name":           {value: "arn:aws:iam::111122223333:role/aZ09_+=,.@-"},
			"a path":                              {value: "arn:aws:iam::111122223333:role/team/logs/loki"},
			"a path of 512 characters":            {value: roleInPath(512)},
			"a path with a dollar sign":           {value: "arn:aws:iam::111122223333:role/$(HOME)/r"},
			"the partition of China":              {value: "arn:aws-cn:iam::111122223333:role/r"},
			"the partition of GovCloud":           {value: "arn:aws-us-gov:iam::111122223333:role/r"},
			"the European sovereign partition":    {value: "arn:aws-eusc:iam::111122223333:role/r"},
			"an isolated partition":               {value: "arn:aws-iso:iam::111122223333:role/r"},
			"an isolated partition with a letter": {value: "arn:aws-iso-b:iam::111122223333:role/r"},
			"an account that begins with zeros":   {value: "arn:aws:iam::000000000001:role/r"},
		},
		denied: map[string]string{
			"nothing":                           "",
			"no name":                           "arn:aws:iam::111122223333:role/",
			"a path and no name":                "arn:aws:iam::111122223333:role/path/",
			"a name of 65 characters":           "arn:aws:iam::111122223333:role/" + strings.Repeat("r", 65),
			"a path of 513 characters":          roleInPath(513),
			"a space in the name":               "arn:aws:iam::111122223333:role/a b",
			"a space in the path":               "arn:aws:iam::111122223333:role/a b/r",
			"a letter that is not ASCII":        "arn:aws:iam::111122223333:role/rôle",
			"an account of 11 digits":           "arn:aws:iam::11112222333:role/r",
			"an account of 13 digits":           "arn:aws:iam::1111222233334:role/r",
			"a letter in the account":           "arn:aws:iam::11112222333x:role/r",
			"a region":                          "arn:aws:iam:eu-central-1:111122223333:role/r",
			"a user":                            "arn:aws:iam::111122223333:user/r",
			"an assumed role":                   "arn:aws:sts::111122223333:assumed-role/r/session",
			"another service":                   "arn:aws:sts::111122223333:role/r",
			"an unknown partition":              "arn:aws-moon:iam::111122223333:role/r",
			"a capital letter in the partition": "arn:AWS:iam::111122223333:role/r",
			"a space before the ARN":            " arn:aws:iam::111122223333:role/r",
			"a line break after the ARN":        "arn:aws:iam::111122223333:role/r\n",
			"a NUL at the end":                  "arn:aws:iam::111122223333:role/r\x00",
			"a line before the ARN":             "x\narn:aws:iam::111122223333:role/r",
			"only the name":                     "r",
		},
		message: "must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name",
	},
	"the start of AWS role ARNs": {
		provider: "aws", parameter: "role-arn-prefix",
		accepted: map[string]accepted{
			"without a path":                  {value: emptyARN},
			"with a path":                     {value: emptyARN + "team/logs/"},
			"in another partition":            {value: "arn:aws-us-gov:iam::111122223333:role/"},
			"a path of 512 with both slashes": {value: emptyARN + strings.Repeat("p", 510) + "/"},
		},
		denied: map[string]string{
			"nothing":              "",
			"a whole ARN":          "arn:aws:iam::111122223333:role/r",
			"no slash at the end":  "arn:aws:iam::111122223333:role/team",
			"no role":              "arn:aws:iam::111122223333:",
			"a user":               "arn:aws:iam::111122223333:user/",
			"a space":              "arn:aws:iam::111122223333:role/a b/",
			"no slash but a line":  "arn:aws:iam::111122223333:role/\n",
			"a path of 513":        emptyARN + strings.Repeat("p", 511) + "/",
			"more than 1024 bytes": emptyARN + strings.Repeat("p", 1024) + "/",
		},
		message: "must be the start of the ARN of an IAM role, up to a slash, such as arn:aws:iam::111122223333:role/",
	},
	"the default project of GCP": {
		provider: "gcp", parameter: "default-project",
		accepted: map[string]accepted{
			"an ID":                 {value: "my-project-123"},
			"a project in a domain": {value: "example.com:my-project"},
		},
		denied: map[string]string{
			"nothing":            "",
			"a project's number": "123456789012",
		},
		message: "must be a project ID of 6 to 30 characters, such as my-project-123",
	},
	"an AWS region": {
		provider: "aws", parameter: "region",
		accepted: map[string]accepted{
			"a commercial region":          {value: "eu-central-1"},
			"a region of GovCloud":         {value: "us-gov-west-1"},
			"an isolated region":           {value: "us-isob-east-1"},
			"a European sovereign region":  {value: "eusc-de-east-1"},
			"a region with a later number": {value: "ap-southeast-12"},
			"64 characters":                {value: "eu-" + strings.Repeat("a", 59) + "-1"},
		},
		denied: map[string]string{
			"nothing":                 "",
			"65 characters":           "eu-" + strings.Repeat("a", 60) + "-1",
			"an availability zone":    "eu-central-1a",
			"no number":               "eu-central",
			"a capital letter":        "EU-central-1",
			"a global pseudo-region":  "aws-global",
			"one letter in front":     "e-central-1",
			"five letters in front":   "europ-central-1",
			"an underscore":           "eu_central_1",
			"a space":                 "eu-central-1 ",
			"a line break":            "eu-central-1\n",
			"a variable's reference":  "$(AWS_REGION)",
			"a host name in disguise": "eu-central-1.evil.example.com",
		},
		message: "must be an AWS region, such as eu-central-1",
	},
	"an Azure client ID": {
		provider: "azure", parameter: "client-id",
		accepted: map[string]accepted{
			"a GUID": {value: "01234567-89ab-cdef-0123-456789abcdef"},
			"capital letters, which become lower case": {
				value: "01234567-89AB-CDEF-0123-456789ABCDEF", want: "01234567-89ab-cdef-0123-456789abcdef",
			},
		},
		denied: map[string]string{
			"nothing":                   "",
			"one digit too few":         "01234567-89ab-cdef-0123-456789abcde",
			"one digit too many":        "01234567-89ab-cdef-0123-456789abcdef0",
			"no dashes":                 "0123456789abcdef0123456789abcdef",
			"a dash in the wrong place": "0123456-789ab-cdef-0123-456789abcdef",
			"a letter that is not a hexadecimal digit": "g1234567-89ab-cdef-0123-456789abcdef",
			"braces":       "{01234567-89ab-cdef-0123-456789abcdef}",
			"a URN":        "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
			"a line break": "01234567-89ab-cdef-0123-456789abcdef\n",
			"a name":       "my-application",
		},
		message: "must be a client ID (GUID), such as 00000000-0000-0000-0000-000000000000",
	},
	"an Azure tenant ID": {
		provider: "azure", parameter: "tenant-id",
		accepted: map[string]accepted{
			"a GUID": {value: "01234567-89ab-cdef-0123-456789abcdef"},
			"a GUID in capital letters, which become lower case": {
				value: "01234567-89AB-CDEF-0123-456789ABCDEF", want: "01234567-89ab-cdef-0123-456789abcdef",
			},
			"Microsoft's domain of a tenant": {value: "contoso.onmicrosoft.com"},
			"a tenant's own domain":          {value: "example.com"},
			"a domain with a dash":           {value: "my-example.com"},
			"a domain of 253 characters":     {value: strings.Repeat("a.", 126) + "a"},
		},
		denied: map[string]string{
			"nothing":                        "",
			"the word common":                "common",
			"the word organizations":         "organizations",
			"the word consumers":             "consumers",
			"the word adfs":                  "adfs",
			"the word common in capitals":    "COMMON",
			"a single label":                 "contoso",
			"a domain of 254 characters":     strings.Repeat("a.", 126) + "aa",
			"a dot at the end":               "example.com.",
			"a dot at the beginning":         ".example.com",
			"two dots":                       "example..com",
			"a dash at the end of a label":   "example-.com",
			"a dash at the front of a label": "-example.com",
			"a slash":                        "example.com/x",
			"an underscore":                  "my_example.com",
			"a URL":                          "https://login.microsoftonline.com/example.com",
			"a GUID with a digit too many":   "01234567-89ab-cdef-0123-456789abcdef0",
			"a line break":                   "example.com\n",
		},
		message: "must be a tenant ID (GUID) or a domain of the tenant such as contoso.onmicrosoft.com; common, organizations, consumers and adfs do not name a tenant",
	},
	"an Azure authority host": {
		provider: "azure", parameter: "authority-host",
		accepted: map[string]accepted{
			"the public cloud's": {value: "https://login.microsoftonline.com/"},
			"no slash at the end, which is added": {
				value: "https://login.microsoftonline.us", want: "https://login.microsoftonline.us/",
			},
			"several slashes at the end, which become one": {
				value: "https://login.partner.microsoftonline.cn///", want: "https://login.partner.microsoftonline.cn/",
			},
			"a port": {value: "https://login.example.com:8443/"},
			"a path": {value: "https://login.example.com/adfs/"},
		},
		denied: map[string]string{
			"nothing":                 "",
			"only a host":             "login.microsoftonline.com",
			"plain HTTP":              "http://login.microsoftonline.com/",
			"no scheme":               "//login.microsoftonline.com/",
			"no host":                 "https://",
			"a path and no host":      "https:///tenant",
			"a port and no host":      "https://:443/",
			"a space in the path":     "https://login.example.com/a b",
			"a user":                  "https://user@login.microsoftonline.com/",
			"a user and a password":   "https://user:password@login.microsoftonline.com/",
			"a query":                 "https://login.microsoftonline.com/?a=b",
			"an empty query":          "https://login.microsoftonline.com/?",
			"a fragment":              "https://login.microsoftonline.com/#a",
			"an empty fragment":       "https://login.microsoftonline.com/#",
			"a space in the host":     "https://login microsoftonline.com/",
			"a line break":            "https://login.microsoftonline.com/\n",
			"a broken percent escape": "https://login.microsoftonline.com/%zz",
		},
		message: "must be an https URL without user, query and fragment, such as https://login.microsoftonline.com/",
	},
	"a GCP workload identity provider": {
		provider: "gcp", parameter: "workload-identity-provider",
		accepted: map[string]accepted{
			"the name without the service": {value: providerName},
			"the service in front, without a scheme": {
				value: "//iam.googleapis.com/" + providerName, want: providerName,
			},
			"the service in front, with a scheme": {
				value: "https://iam.googleapis.com/" + providerName, want: providerName,
			},
			"the shortest pool and provider": {value: "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s1"},
			"the longest pool and provider": {
				value: "projects/1/locations/global/workloadIdentityPools/" + strings.Repeat("p", 32) + "/providers/" + strings.Repeat("k", 32),
			},
			"a pool that has gcp- in it": {value: "projects/1/locations/global/workloadIdentityPools/my-gcp-pool/providers/my-gcp-k8s"},
		},
		denied: map[string]string{
			"nothing":                                         "",
			"a project ID":                                    strings.Replace(providerName, "123456789012", "my-project", 1),
			"another location":                                strings.Replace(providerName, "global", "europe-west1", 1),
			"a pool of 3 characters":                          "projects/1/locations/global/workloadIdentityPools/poo/providers/k8s1",
			"a pool of 33 characters":                         "projects/1/locations/global/workloadIdentityPools/" + strings.Repeat("p", 33) + "/providers/k8s1",
			"a provider of 3 characters":                      "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s",
			"a provider of 33 characters":                     "projects/1/locations/global/workloadIdentityPools/pool/providers/" + strings.Repeat("k", 33),
			"a pool with Google's prefix":                     "projects/1/locations/global/workloadIdentityPools/gcp-pool/providers/k8s1",
			"a provider with the same prefix":                 "projects/1/locations/global/workloadIdentityPools/pool/providers/gcp-k8s1",
			"a capital letter":                                "projects/1/locations/global/workloadIdentityPools/Pool/providers/k8s1",
			"no provider":                                     "projects/1/locations/global/workloadIdentityPools/pool",
			"a slash at the end":                              providerName + "/",
			"a slash at the front":                            "/" + providerName,
			"another service":                                 "https://sts.googleapis.com/" + providerName,
			"a host that ends the same":                       "//evil-iam.googleapis.com/" + providerName,
			"plain HTTP":                                      "http://iam.googleapis.com/" + providerName,
			"a scheme and no service":                         "https:" + providerName,
			"the service twice":                               "//iam.googleapis.com///iam.googleapis.com/" + providerName,
			"a workforce pool":                                "//iam.googleapis.com/locations/global/workforcePools/pool-1/providers/k8s1",
			"a line break":                                    providerName + "\n",
			"the word default, which is for annotations only": "default",
		},
		message: `must be projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER, with or without //iam.googleapis.com/ or https://iam.googleapis.com/ in front; pool and provider have 4 to 32 of a-z, 0-9 and "-" and do not begin with "gcp-"`,
	},
	"a GCP service account": {
		provider: "gcp", parameter: "service-account",
		accepted: map[string]accepted{
			"a user's own service account":             {value: "reader@my-project.iam.gserviceaccount.com"},
			"the shortest service account and project": {value: "abcdef@abcdef.iam.gserviceaccount.com"},
			"the longest service account and project":  {value: "a" + strings.Repeat("b", 29) + "@p" + strings.Repeat("q", 29) + ".iam.gserviceaccount.com"},
			"a service account in a domain's project":  {value: "reader@my-project.example.com.iam.gserviceaccount.com"},
			"Compute Engine's default service account": {value: "123456789012-compute@developer.gserviceaccount.com"},
			"App Engine's default service account":     {value: "my-project@appspot.gserviceaccount.com"},
		},
		denied: map[string]string{
			"nothing":                                     "",
			"a service account of 5 characters":           "abcde@my-project.iam.gserviceaccount.com",
			"a service account of 31 characters":          "a" + strings.Repeat("b", 30) + "@my-project.iam.gserviceaccount.com",
			"a project of 5 characters":                   "reader@abcde.iam.gserviceaccount.com",
			"a project of 31 characters":                  "reader@p" + strings.Repeat("q", 30) + ".iam.gserviceaccount.com",
			"a digit at the front of the service account": "1reader@my-project.iam.gserviceaccount.com",
			"a dash at the end of the service account":    "reader-@my-project.iam.gserviceaccount.com",
			"a capital letter":                            "Reader@my-project.iam.gserviceaccount.com",
			"a person":                                    "someone@example.com",
			"no service account":                          "@my-project.iam.gserviceaccount.com",
			"no project":                                  "reader@iam.gserviceaccount.com",
			"a slash":                                     "reader/x@my-project.iam.gserviceaccount.com",
			"a colon, at which Node's client stops":       "reader@my-project.iam.gserviceaccount.com:generateIdToken",
			"a host that only ends like Google's":         "reader@my-project.iam.gserviceaccount.com.example.com",
			"another character instead of a dot":          "reader@my-project.iamxgserviceaccount.com",
			"a line break":                                "reader@my-project.iam.gserviceaccount.com\n",
			"the resource name":                           "projects/-/serviceAccounts/reader@my-project.iam.gserviceaccount.com",
			"an e-mail of more than 320 characters":       "reader@my-project" + strings.Repeat(".example", 40) + ".iam.gserviceaccount.com",
		},
		message: "must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com",
	},
	"a GCP project": {
		provider: "gcp", parameter: "project",
		accepted: map[string]accepted{
			"6 characters":          {value: "abcdef"},
			"30 characters":         {value: "a" + strings.Repeat("b", 29)},
			"dashes and digits":     {value: "my-project-123"},
			"a project in a domain": {value: "example.com:my-project"},
		},
		denied: map[string]string{
			"nothing":                  "",
			"5 characters":             "abcde",
			"31 characters":            "a" + strings.Repeat("b", 30),
			"a project's number":       "123456789012",
			"a digit at the front":     "1my-project",
			"a dash at the end":        "my-project-",
			"a capital letter":         "My-project",
			"a space":                  "my project",
			"a domain and no project":  "example.com:",
			"a resource name":          "projects/my-project",
			"a line break":             "my-project\n",
			"more than 320 characters": strings.Repeat("a.", 160) + "com:my-project",
		},
		message: "must be a project ID of 6 to 30 characters, such as my-project-123",
	},
}

// parameter returns the parameter of a definition.
func parameter(t *testing.T, provider, name string) *Parameter {
	t.Helper()
	for _, d := range Builtin() {
		for i := range d.Parameters {
			if d.Name == provider && d.Parameters[i].Name == name {
				return &d.Parameters[i]
			}
		}
	}
	t.Fatalf("%s has no parameter %s", provider, name)
	return nil
}

func TestParametersHaveAGrammar(t *testing.T) {
	t.Parallel()
	for name, grammar := range grammars {
		p := parameter(t, grammar.provider, grammar.parameter)
		for sentence, tt := range grammar.accepted {
			t.Run(name+" may be "+sentence, func(t *testing.T) {
				t.Parallel()
				want := tt.want
				if want == "" {
					want = tt.value
				}
				got, err := p.Read(tt.value)
				if err != nil || got != want {
					t.Errorf("%q: got %q and error %v, want %q", tt.value, got, err, want)
				}
				if again, err := p.Read(got); err != nil || again != got {
					t.Errorf("%q: reading the result again: got %q and error %v", got, again, err)
				}
			})
		}
		for sentence, value := range grammar.denied {
			t.Run(name+" must not be "+sentence, func(t *testing.T) {
				t.Parallel()
				want := grammar.message
				if len(value) > p.MaxBytes {
					want = fmt.Sprintf("must have at most %d bytes", p.MaxBytes)
				}
				got, err := p.Read(value)
				if err == nil {
					t.Fatalf("%q: got %q, want an error", value, got)
				}
				if got != "" {
					t.Errorf("%q: got %q in addition to the error", value, got)
				}
				if err.Error() != want {
					t.Errorf("message:\n got %s\nwant %s", err, want)
				}
			})
		}
	}
}

func TestEveryParameterHasAGrammarTable(t *testing.T) {
	t.Parallel()
	tables := map[string]bool{}
	for _, grammar := range grammars {
		tables[grammar.provider+"-"+grammar.parameter] = true
	}
	for _, d := range Builtin() {
		for i := range d.Parameters {
			if name := d.Name + "-" + d.Parameters[i].Name; !tables[name] {
				t.Errorf("%s: no table of accepted and denied values", name)
			}
		}
	}
}

func TestProjectOfAServiceAccount(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ email, project string }{
		"a user's own service account has its project in the e-mail": {"reader@my-project.iam.gserviceaccount.com", "my-project"},
		"a domain comes before its project":                          {"reader@my-project.example.com.iam.gserviceaccount.com", "example.com:my-project"},
		"App Engine's service account is named after the project":    {"my-project@appspot.gserviceaccount.com", "my-project"},
		"Compute Engine's e-mail has a number, which is not an ID":   {"123456789012-compute@developer.gserviceaccount.com", ""},
		"direct federation has no service account":                   {"", ""},
	}
	project := parameter(t, "gcp", "project")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := projectOf(tt.email)
			if got != tt.project {
				t.Errorf("%s: got project %q, want %q", tt.email, got, tt.project)
			}
			if got == "" {
				return
			}
			if _, err := project.Read(got); err != nil {
				t.Errorf("%s: its project %q is not accepted as an annotation: %v", tt.email, got, err)
			}
		})
	}
}
