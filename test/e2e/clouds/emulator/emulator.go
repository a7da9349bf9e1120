// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulator serves the emulated clouds under the host names of the real
// ones.
package emulator

import (
	"maps"
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

// The production host names.
var (
	awsHosts = []string{
		"sts.amazonaws.com",
		"sts.ap-southeast-2.amazonaws.com",
		"sts.eu-central-1.amazonaws.com",
		"sts.eu-west-1.amazonaws.com",
		"sts.us-east-1.amazonaws.com",
		"sts.us-west-2.amazonaws.com",
	}
	entraHosts   = []string{entra.Host, "login.microsoft.com"}
	alibabaHosts = []string{"sts.aliyuncs.com", "sts.eu-central-1.aliyuncs.com"}
	openaiHosts  = []string{"auth.openai.com", "api.openai.com"}
)

const (
	stsHost             = "sts.googleapis.com"
	credentialsHost     = "iamcredentials.googleapis.com"
	resourceManagerHost = "cloudresourcemanager.googleapis.com"

	ibmHost = "iam.cloud.ibm.com"
	// vaultHost stands for a server of the users'.
	vaultHost = "vault.example.com"

	anthropicHost = "api.anthropic.com"
	// snowflakeHost is the host of the account example-production.
	snowflakeHost = "example-production.snowflakecomputing.com"
)

// Hosts returns all host names, sorted, for the certificate and the pods'
// hostAliases.
func Hosts() []string {
	return slices.Sorted(maps.Keys(route(&services{})))
}

// New returns a handler for all clouds with the configured trust. Each decision
// is written to the journal.
func New(config trust.Trust, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	sts, err := aws.New(config.AWS, tokens, log)
	if err != nil {
		return nil, err
	}
	login, err := entra.New(config.Entra, tokens, log)
	if err != nil {
		return nil, err
	}
	cloud, err := google.New(config.Google, tokens, log)
	if err != nil {
		return nil, err
	}
	ram, err := alibaba.New(config.Alibaba, tokens, log)
	if err != nil {
		return nil, err
	}
	iam, err := ibm.New(config.IBM, tokens, log)
	if err != nil {
		return nil, err
	}
	secrets, err := vault.New(config.Vault, tokens, log)
	if err != nil {
		return nil, err
	}
	all := &services{
		aws: sts, entra: login,
		googleSTS: cloud.STS(), credentials: cloud.Credentials(), resourceManager: cloud.ResourceManager(),
		alibaba: ram, ibm: iam, vault: secrets,
	}
	if err := all.addAPIs(config, tokens, log); err != nil {
		return nil, err
	}
	return serve(route(all)), nil
}

// addAPIs adds the APIs that are not clouds.
func (s *services) addAPIs(config trust.Trust, tokens *issuer.Issuer, log *journal.Journal) (err error) {
	if s.anthropic, err = apis.NewAnthropic(config.Anthropic, tokens, log); err != nil {
		return err
	}
	if s.openai, err = apis.NewOpenAI(config.OpenAI, tokens, log); err != nil {
		return err
	}
	s.snowflake, err = apis.NewSnowflake(config.Snowflake, tokens, log)
	return err
}

// serve returns a handler that chooses the service by the host name.
func serve(routes map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, found := routes[host(r)]
		if !found {
			http.Error(w, "not a host name of an emulated cloud", http.StatusMisdirectedRequest)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		handler.ServeHTTP(w, r)
	})
}

// services are the handlers of the emulated services.
type services struct {
	aws, entra                              http.Handler
	googleSTS, credentials, resourceManager http.Handler
	alibaba, ibm, vault                     http.Handler
	anthropic, openai, snowflake            http.Handler
}

// route returns the handlers by host name.
func route(s *services) map[string]http.Handler {
	routes := map[string]http.Handler{
		stsHost:             s.googleSTS,
		credentialsHost:     s.credentials,
		resourceManagerHost: s.resourceManager,
		ibmHost:             s.ibm,
		vaultHost:           s.vault,
		anthropicHost:       s.anthropic,
		snowflakeHost:       s.snowflake,
	}
	for _, name := range awsHosts {
		routes[name] = s.aws
	}
	for _, name := range entraHosts {
		routes[name] = s.entra
	}
	for _, name := range openaiHosts {
		routes[name] = s.openai
	}
	for _, name := range alibabaHosts {
		routes[name] = s.alibaba
	}
	return routes
}

// host returns the request's host name in lower case and without the port.
func host(r *http.Request) string {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = r.Host
	}
	return strings.ToLower(name)
}
