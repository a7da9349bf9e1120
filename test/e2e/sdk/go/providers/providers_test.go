// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package providers tests the ready-made providers in examples/providers: it sets the
// variables of the pods in the golden cases of the injector, and checks the values that
// the real reader of each SDK finds.
//
// databricks-sdk-go is not tested: the Go module proxy does not have it.
package providers

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/aliyun/credentials-go/credentials/providers"
	"github.com/google/go-cmp/cmp"
	vault "github.com/hashicorp/vault/api"
	"github.com/huaweicloud/huaweicloud-sdk-go-v3/core/auth"
	huawei "github.com/huaweicloud/huaweicloud-sdk-go-v3/core/auth/provider"
	"github.com/stackitcloud/stackit-sdk-go/core/clients"
	"github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common"

	"github.com/lanyard-dev/lanyard/test/support/decisions"
)

const (
	golden = "../../../../decisions"
	// mountPath is where a container of the golden cases has its tokens.
	mountPath = "/var/run/secrets/lanyard.dev/serviceaccount"
	// token is the content of the token's file. Some SDKs read its claims: it has no
	// audience, and expires in the year 2100.
	token = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjQxMDI0NDQ4MDB9.c2lnbmF0dXJl"
)

// read are the values that an SDK has read, by names of its own.
type read map[string]string

// tests maps providers to the readers of their SDKs.
func tests() map[string]struct {
	read func(t *testing.T, file string) read
	want func(file string) read
} {
	return map[string]struct {
		read func(t *testing.T, file string) read
		want func(file string) read
	}{
		"alibaba": {readAlibaba, func(file string) read {
			return read{
				"roleArn":           "acs:ram::1234567890123456:role/app",
				"oidcProviderARN":   "acs:ram::1234567890123456:oidc-provider/cluster",
				"oidcTokenFilePath": file,
				"stsEndpoint":       "sts.eu-central-1.aliyuncs.com",
			}
		}},
		"huawei": {readHuawei, func(file string) read {
			return read{"IdpId": "cluster", "IdTokenFile": file, "ProjectId": "0123456789abcdef0123456789abcdef"}
		}},
		"ibm": {readIBM, func(file string) read {
			return read{"IAMProfileID": "Profile-01234567-89ab-cdef-0123-456789abcdef", "CRTokenFilename": file, "URL": "https://iam.cloud.ibm.com"}
		}},
		"stackit": {readSTACKIT, func(string) read {
			return read{"ClientID": "app@sa.stackit.cloud", "token": token, "TokenUrl": "https://accounts.stackit.cloud/oauth/v2/token"}
		}},
		"tencent": {readTencent, func(string) read {
			return read{"roleArn": "qcs::cam::uin/100000000001:roleName/app", "providerId": "cluster", "webIdentityToken": token}
		}},
		"vault": {readVault, func(string) read {
			return read{"address": "https://vault.example.com:8200", "namespace": ""}
		}},
	}
}

// unread are the ready-made providers whose SDK is not read here. The tests in
// test/e2e/clouds/apis run the SDKs of Anthropic, OpenAI and Snowflake. The clients of Kafka that
// read variables are written in Java, and no test runs one.
var unread = []string{"databricks", "anthropic", "openai", "snowflake", "kafka"}

func TestTheSDKsReadTheVariables(t *testing.T) {
	for name, test := range tests() {
		t.Run(name, func(t *testing.T) {
			file := setEnvironment(t, name)
			if diff := cmp.Diff(test.want(file), test.read(t, file)); diff != "" {
				t.Errorf("what the SDK read (-want +got):\n%s", diff)
			}
		})
	}
}

// A new provider must have a test here, or a reason not to have one.
func TestAllReadyMadeProvidersAreTested(t *testing.T) {
	cases, err := decisions.Read(golden)
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c *decisions.Case) bool { return c.Theme != decisions.Providers })
	if len(cases) == 0 {
		t.Fatal("got no golden cases")
	}
	known := tests()
	for _, c := range cases {
		if _, found := known[c.Name]; !found && !slices.Contains(unread, c.Name) {
			t.Errorf("%s: got no test of its SDK", c.File)
		}
	}
}

// pod contains the parts of a pod that matter here.
type pod struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		Containers []struct {
			Env []struct{ Name, Value string }
		}
	}
}

// injected returns the pod of a golden case after the webhook.
func injected(t *testing.T, name string) *pod {
	t.Helper()
	c, err := decisions.ReadCase(golden, name)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	pod := &pod{}
	if err := json.Unmarshal(result, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// setEnvironment sets the variables of a golden case, and returns the file that
// stands for the token. No other variable of an SDK is set.
func setEnvironment(t *testing.T, name string) (file string) {
	t.Helper()
	pod := injected(t, decisions.Providers+"/"+name)
	directory := t.TempDir()
	t.Setenv("HOME", directory) // the SDKs look for files there
	for _, v := range pod.Spec.Containers[0].Env {
		value := v.Value
		if relative, isFile := strings.CutPrefix(value, mountPath+"/"); isFile {
			value = filepath.Join(directory, relative)
			file = value
		}
		t.Setenv(v.Name, value)
	}
	if file == "" {
		t.Fatal("got no variable that points to a token")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fields returns the string fields of a struct, including unexported ones.
func fields(t *testing.T, of any, names ...string) read {
	t.Helper()
	values := read{}
	for _, name := range names {
		field := reflect.ValueOf(of).Elem().FieldByName(name)
		if field.Kind() != reflect.String {
			t.Fatalf("%T: got no field %s with a text", of, name)
		}
		values[name] = field.String()
	}
	return values
}

func readAlibaba(t *testing.T, _ string) read {
	t.Helper()
	provider, err := providers.NewOIDCCredentialsProviderBuilder().Build()
	if err != nil {
		t.Fatal(err)
	}
	return fields(t, provider, "roleArn", "oidcProviderARN", "oidcTokenFilePath", "stsEndpoint")
}

func readHuawei(t *testing.T, _ string) read {
	t.Helper()
	found, err := huawei.BasicCredentialEnvProvider().GetCredentials()
	if err != nil {
		t.Fatal(err)
	}
	credentials, ok := found.(*auth.BasicCredentials)
	if !ok {
		t.Fatalf("got credentials %T", found)
	}
	return fields(t, credentials, "IdpId", "IdTokenFile", "ProjectId")
}

func readIBM(t *testing.T, _ string) read {
	t.Helper()
	authenticator, err := core.GetAuthenticatorFromEnvironment("secrets_manager")
	if err != nil {
		t.Fatal(err)
	}
	container, ok := authenticator.(*core.ContainerAuthenticator)
	if !ok {
		t.Fatalf("got the authenticator %T", authenticator)
	}
	return fields(t, container, "IAMProfileID", "CRTokenFilename", "URL")
}

func readSTACKIT(t *testing.T, _ string) read {
	t.Helper()
	var flow clients.WorkloadIdentityFederationFlow
	if err := flow.Init(&clients.WorkloadIdentityFederationFlowConfig{}); err != nil {
		t.Fatal(err)
	}
	config := flow.GetConfig()
	values := fields(t, &config, "ClientID", "TokenUrl")
	content, err := config.FederatedTokenFunction(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	values["token"] = content
	return values
}

func readTencent(t *testing.T, _ string) read {
	t.Helper()
	provider, err := common.DefaultTkeOIDCRoleArnProvider()
	if err != nil {
		t.Fatal(err)
	}
	return fields(t, provider, "roleArn", "providerId", "webIdentityToken")
}

// readVault returns what Vault's client reads: it has no variables for a token's file
// and a role.
func readVault(t *testing.T, file string) read {
	t.Helper()
	client, err := vault.NewClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("LANYARD_VAULT_TOKEN_FILE"); got != file {
		t.Errorf("LANYARD_VAULT_TOKEN_FILE: got %q, want %q", got, file)
	}
	return read{"address": client.Address(), "namespace": client.Namespace()}
}
