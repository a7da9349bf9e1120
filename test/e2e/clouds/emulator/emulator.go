// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulator serves the emulated clouds under the host names of the real
// ones.
package emulator

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/alibaba"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/apis"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/aws"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/entra"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/google"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/ibm"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/vault"
)

// maxBody limits the size of a request body in bytes. A token has at most 20000
// characters.
const maxBody = 64 << 10

// cloud is an emulated cloud with its production host names.
type cloud struct {
	hosts []string
	build func(*issuer.Issuer, *journal.Journal) (http.Handler, error)
}

func cloudOf[C any, H http.Handler](build func(C, *issuer.Issuer, *journal.Journal) (H, error), config C, hosts ...string) cloud {
	return cloud{hosts, func(tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
		return build(config, tokens, log)
	}}
}

// clouds returns all clouds with the configured trust. vault.example.com stands for a
// server of the users, and example-production is an account of Snowflake.
func clouds(config *trust.Trust) []cloud {
	return []cloud{
		cloudOf(aws.New, config.AWS, "sts.amazonaws.com", "sts.ap-southeast-2.amazonaws.com", "sts.eu-central-1.amazonaws.com",
			"sts.eu-west-1.amazonaws.com", "sts.us-east-1.amazonaws.com", "sts.us-west-2.amazonaws.com"),
		cloudOf(entra.New, config.Entra, entra.Host, "login.microsoft.com"),
		cloudOf(google.New, config.Google, google.Hosts...),
		cloudOf(alibaba.New, config.Alibaba, "sts.aliyuncs.com", "sts.eu-central-1.aliyuncs.com"),
		cloudOf(ibm.New, config.IBM, "iam.cloud.ibm.com"),
		cloudOf(vault.New, config.Vault, "vault.example.com"),
		cloudOf(apis.NewAnthropic, config.Anthropic, "api.anthropic.com"),
		cloudOf(apis.NewOpenAI, config.OpenAI, "auth.openai.com", "api.openai.com"),
		cloudOf(apis.NewSnowflake, config.Snowflake, "example-production.snowflakecomputing.com"),
	}
}

// Hosts returns all host names, sorted, for the certificate and the pods'
// hostAliases.
func Hosts() []string {
	var hosts []string
	for _, c := range clouds(&trust.Trust{}) {
		hosts = append(hosts, c.hosts...)
	}
	slices.Sort(hosts)
	return hosts
}

// Environment returns the variables, as NAME=VALUE, that make the SDKs of each language trust
// the CA in a file, and that disable metadata servers and credential files in the home
// directory. The SDKs then send no requests to anything but the emulators.
func Environment(ca string) []string {
	return []string{
		"SSL_CERT_FILE=" + ca,
		"NODE_EXTRA_CA_CERTS=" + ca,
		"REQUESTS_CA_BUNDLE=" + ca,
		"AWS_CA_BUNDLE=" + ca,
		"AWS_EC2_METADATA_DISABLED=true",
		"ALIBABA_CLOUD_ECS_METADATA_DISABLED=true",
		"NO_GCE_CHECK=true",
		"SNOWFLAKE_DISABLE_PLATFORM_DETECTION=true",
		"SF_OCSP_RESPONSE_CACHE_SERVER_ENABLED=false",
		"METADATA_SERVER_DETECTION=none",
		"HOME=/nonexistent",
	}
}

// New returns a handler for all clouds with the configured trust, which chooses the cloud by
// the host name. Each decision is written to the journal.
func New(config trust.Trust, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	routes := map[string]http.Handler{}
	for _, c := range clouds(&config) {
		handler, err := c.build(tokens, log)
		if err != nil {
			return nil, err
		}
		for _, name := range c.hosts {
			routes[name] = handler
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, found := routes[host(r)]
		if !found {
			http.Error(w, "not a host name of an emulated cloud", http.StatusMisdirectedRequest)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		handler.ServeHTTP(w, r)
	}), nil
}

// host returns the request's host name in lower case and without the port.
func host(r *http.Request) string {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = r.Host
	}
	return strings.ToLower(name)
}
