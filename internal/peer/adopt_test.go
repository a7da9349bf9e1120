// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	eksRole   = "eks.amazonaws.com/role-arn"
	eksExpiry = "eks.amazonaws.com/token-expiration"
	eksPath   = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	otherRole = "arn:aws:iam::111122223333:role/other"
	azClient  = "azure.workload.identity/client-id"
	azExpiry  = "azure.workload.identity/service-account-token-expiration"
	azPath    = "/var/run/secrets/azure/tokens/azure-identity-token"
	gcpName   = "cloud.google.com/workload-identity-provider"
	gcpEmail  = "cloud.google.com/service-account-email"
	gkeEmail  = "iam.gke.io/gcp-service-account"
	gcpPath   = "/var/run/secrets/sts.googleapis.com/serviceaccount/token"
	gcpPool   = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-k8s"
	roleARN   = "arn:aws:iam::111122223333:role/logs"
	clientID  = "01234567-89ab-cdef-0123-456789abcdef"
	email     = "reader@my-project.iam.gserviceaccount.com"
)

// newSettings returns the settings of a cluster with defaults.
func newSettings(tb testing.TB) *annotations.Settings {
	tb.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		tb.Fatal(err)
	}
	s.Parameters = map[string]string{"gcp-workload-identity-provider": gcpPool, "gcp-audience": "gcp.cluster", "azure-tenant-id": "contoso.onmicrosoft.com"}
	return s
}

// values are annotations. Keys without a slash are Lanyard's, without the prefix.
type values map[string]string

func (v values) whole() map[string]string {
	result := map[string]string{}
	for key, value := range v {
		if !strings.Contains(key, "/") {
			key = "lanyard.dev/" + key
		}
		result[key] = value
	}
	return result
}

func peersNamed(t *testing.T, names ...string) []*peer.Peer {
	t.Helper()
	peers, err := peer.Named(names)
	if err != nil {
		t.Fatal(err)
	}
	return peers
}

// adopt applies an adoption, and returns Lanyard's annotations without the record.
func adopt(t *testing.T, has map[string]string, peers ...string) (whole, own map[string]string, warnings []string) {
	t.Helper()
	s := newSettings(t)
	delete(s.Parameters, "gcp-audience")
	a := peer.Adopt(s, peersNamed(t, peers...), has)
	whole = maps.Clone(has)
	maps.Copy(whole, a.Set)
	for _, key := range a.Remove {
		if _, found := whole[key]; !found {
			t.Errorf("removes %s, which is not there", key)
		}
		delete(whole, key)
	}
	if again := peer.Adopt(s, peersNamed(t, peers...), whole); len(again.Set)+len(again.Remove) > 0 {
		t.Errorf("a second pass sets %v and removes %v", again.Set, again.Remove)
	}
	own = map[string]string{}
	for key, value := range whole {
		if name, found := strings.CutPrefix(key, "lanyard.dev/"); found && name != "adopted" {
			own[name] = value
		}
	}
	for _, f := range a.Findings {
		warnings = append(warnings, f.String())
	}
	return whole, own, warnings
}

var allPeers = []string{"eks", "azure", "gcp", "gke"}

func TestAdopt(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		has     values
		want    map[string]string
		warning string // in the only one
	}{
		"nothing":                               {values{}, map[string]string{}, ""},
		"others' annotations under its prefix":  {values{"eks.amazonaws.com/component": "a", "cloud.google.com/neg": "b"}, map[string]string{}, ""},
		"a role":                                {values{eksRole: roleARN}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, ""},
		"an empty role":                         {values{eksRole: ""}, map[string]string{}, ""},
		"an odd role":                           {values{eksRole: "arn:aws:iam:::role/x"}, map[string]string{"aws-role-arn": "arn:aws:iam:::role/x", "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, ""},
		"an audience":                           {values{eksRole: roleARN, "eks.amazonaws.com/audience": "mine"}, map[string]string{"aws-role-arn": roleARN, "aws-audience": "mine", "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, ""},
		"a lifetime":                            {values{eksRole: roleARN, eksExpiry: "3600"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "3600"}, ""},
		"a lifetime that the peer raises":       {values{eksRole: roleARN, eksExpiry: "0"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "600"}, ""},
		"a lifetime above the limit":            {values{eksRole: roleARN, eksExpiry: "90000"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, "86400 seconds"},
		"a lifetime that the peer ignores":      {values{eksRole: roleARN, eksExpiry: "1h"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, "not a number"},
		"the global endpoint":                   {values{eksRole: roleARN, "eks.amazonaws.com/sts-regional-endpoints": "false"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, "AWS_STS_REGIONAL_ENDPOINTS"},
		"the regional endpoint":                 {values{eksRole: roleARN, "eks.amazonaws.com/sts-regional-endpoints": "true"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, ""},
		"the regional endpoint, in a word":      {values{eksRole: roleARN, "eks.amazonaws.com/sts-regional-endpoints": "yes"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, ""},
		"a client":                              {values{azClient: clientID}, map[string]string{"azure-client-id": clientID, "azure-token-path": azPath}, ""},
		"a client with a tenant and a lifetime": {values{azClient: clientID, "azure.workload.identity/tenant-id": "contoso.example", azExpiry: "7200"}, map[string]string{"azure-client-id": clientID, "azure-tenant-id": "contoso.example", "azure-token-path": azPath, "token-expiration-seconds": "7200"}, ""},
		"a lifetime that the peer denies":       {values{azClient: clientID, azExpiry: "100"}, map[string]string{"azure-client-id": clientID, "azure-token-path": azPath, "token-expiration-seconds": "100"}, ""},
		"an empty tenant":                       {values{azClient: clientID, "azure.workload.identity/tenant-id": ""}, map[string]string{"azure-client-id": clientID, "azure-token-path": azPath}, "default"},
		"a tenant without a client":             {values{"azure.workload.identity/tenant-id": "contoso.example"}, map[string]string{}, ""},
		"a Google service account":              {values{gcpName: gcpPool, gcpEmail: email}, map[string]string{"gcp-workload-identity-provider": gcpPool, "gcp-service-account": email, "gcp-audience": "sts.googleapis.com", "gcp-token-path": gcpPath, "token-expiration-seconds": "86400"}, ""},
		"a Google lifetime that is raised":      {values{gcpName: gcpPool, gcpEmail: email, "cloud.google.com/token-expiration": "600"}, map[string]string{"gcp-workload-identity-provider": gcpPool, "gcp-service-account": email, "gcp-audience": "sts.googleapis.com", "gcp-token-path": gcpPath, "token-expiration-seconds": "3600"}, ""},
		"half a Google identity":                {values{gcpEmail: email}, map[string]string{}, gcpName},
		"the other half":                        {values{gcpName: gcpPool}, map[string]string{}, gcpEmail},
		"a service account of GKE":              {values{gkeEmail: email}, map[string]string{"gcp-service-account": email}, ""},
		"two service accounts":                  {values{gcpName: gcpPool, gcpEmail: email, gkeEmail: "x@y"}, map[string]string{"gcp-workload-identity-provider": gcpPool, "gcp-service-account": email, "gcp-audience": "sts.googleapis.com", "gcp-token-path": gcpPath, "token-expiration-seconds": "86400"}, "iam.gke.io/gcp-service-account: another annotation asks for the same cloud, and counts"},
		"two clouds, the shortest lifetime":     {values{eksRole: roleARN, azClient: clientID, azExpiry: "7200"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "azure-client-id": clientID, "azure-token-path": azPath, "token-expiration-seconds": "7200"}, ""},
		"a lifetime too short for the other":    {values{eksRole: roleARN, eksExpiry: "600", azClient: clientID}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "azure-client-id": clientID, "azure-token-path": azPath, "token-expiration-seconds": "3600"}, "not 600"},

		"beside an identity by hand":               {values{eksRole: roleARN, "aws-role-arn": otherRole}, map[string]string{"aws-role-arn": otherRole}, "lanyard.dev/aws-role-arn"},
		"beside an identity of another cloud":      {values{eksRole: roleARN, "azure-client-id": clientID}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "azure-client-id": clientID}, ""},
		"beside a token of the same cloud":         {values{eksRole: roleARN, "tokens": "aws"}, map[string]string{"tokens": "aws"}, "lanyard.dev/tokens"},
		"beside tokens of both":                    {values{eksRole: roleARN, "tokens": "azure, aws"}, map[string]string{"tokens": "azure, aws"}, "lanyard.dev/tokens"},
		"beside a token of another cloud":          {values{eksRole: roleARN, "tokens": "azure"}, map[string]string{"tokens": "azure", "aws-role-arn": roleARN, "aws-token-path": eksPath}, ""},
		"beside a plain token":                     {values{eksRole: roleARN, "audience": "vault"}, map[string]string{"audience": "vault"}, "lanyard.dev/audience"},
		"beside a region by hand":                  {values{eksRole: roleARN, "aws-region": "eu-west-1"}, map[string]string{"aws-role-arn": roleARN, "aws-region": "eu-west-1", "aws-token-path": eksPath, "token-expiration-seconds": "86400"}, ""},
		"beside a token path and lifetime by hand": {values{eksRole: roleARN, "aws-token-path": "/a/b", "token-expiration-seconds": "7200"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": "/a/b", "token-expiration-seconds": "7200"}, ""},
		"a made-up record of another annotation":   {values{"audience": "vault", "adopted": "audience=e6f0a1fb"}, map[string]string{"audience": "vault"}, ""},
		"a record that somebody made up":           {values{eksRole: roleARN, "aws-role-arn": otherRole, "adopted": "aws-role-arn=00000000,x=,="}, map[string]string{"aws-role-arn": otherRole}, "lanyard.dev/aws-role-arn"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, got, warnings := adopt(t, tt.has.whole(), allPeers...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if tt.warning == "" && len(warnings) > 0 || tt.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], tt.warning)) {
				t.Errorf("got warnings %q, want one with %q", warnings, tt.warning)
			}
		})
	}
}

func TestAdoptedAnnotationsFollowThePeers(t *testing.T) {
	t.Parallel()
	adopted := map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}
	for sentence, tt := range map[string]struct {
		change values // "-" removes
		peers  []string
		want   map[string]string
	}{
		"nothing changed":                       {values{}, allPeers, adopted},
		"another role":                          {values{eksRole: otherRole}, allPeers, map[string]string{"aws-role-arn": otherRole, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}},
		"another lifetime":                      {values{eksExpiry: "3600"}, allPeers, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "3600"}},
		"no role":                               {values{eksRole: "-"}, allPeers, map[string]string{}},
		"an empty role":                         {values{eksRole: ""}, allPeers, map[string]string{}},
		"no role, with a region by hand":        {values{eksRole: "-", "aws-region": "eu-west-1"}, allPeers, map[string]string{"aws-region": "eu-west-1"}},
		"a role by hand":                        {values{"aws-role-arn": otherRole}, allPeers, map[string]string{"aws-role-arn": otherRole, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}},
		"a role by hand, then no role":          {values{"aws-role-arn": otherRole, eksRole: "-"}, allPeers, map[string]string{"aws-role-arn": otherRole, "aws-token-path": eksPath, "token-expiration-seconds": "86400"}},
		"a token path by hand and another role": {values{"aws-token-path": "/a/b", eksRole: otherRole}, allPeers, map[string]string{"aws-role-arn": otherRole, "aws-token-path": "/a/b", "token-expiration-seconds": "86400"}},
		"an adopted annotation removed":         {values{"aws-role-arn": "-", "aws-token-path": "-"}, allPeers, adopted},
		"all of Lanyard's removed":              {values{"aws-role-arn": "-", "aws-token-path": "-", "token-expiration-seconds": "-", "adopted": "-"}, allPeers, adopted},
		"only the record removed":               {values{"adopted": "-", eksRole: otherRole}, allPeers, adopted},
		"the peer not adopted any more":         {values{eksRole: otherRole}, []string{"azure"}, adopted},
		"the peer not adopted, another added":   {values{eksRole: "-", azClient: clientID}, []string{"azure"}, map[string]string{"aws-role-arn": roleARN, "aws-token-path": eksPath, "token-expiration-seconds": "86400", "azure-client-id": clientID, "azure-token-path": azPath}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			before, _, _ := adopt(t, values{eksRole: roleARN}.whole(), allPeers...)
			for key, value := range tt.change.whole() {
				before[key] = value
				if value == "-" {
					delete(before, key)
				}
			}
			_, got, _ := adopt(t, before, tt.peers...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// Once a user has written a role, the peer's annotations no longer have an effect.
func TestAnAnnotationByHandWinsFromThenOn(t *testing.T) {
	t.Parallel()
	has, _, _ := adopt(t, values{eksRole: roleARN}.whole(), "eks")
	has["lanyard.dev/aws-role-arn"] = otherRole
	has, _, _ = adopt(t, has, "eks")
	has[eksRole] = "arn:aws:iam::111122223333:role/third"
	_, own, _ := adopt(t, has, "eks")
	if own["aws-role-arn"] != otherRole {
		t.Errorf("got role %s, want %s", own["aws-role-arn"], otherRole)
	}
}

func TestTheRecordNamesWhatWasAdopted(t *testing.T) {
	t.Parallel()
	whole, _, _ := adopt(t, values{eksRole: roleARN, azClient: clientID}.whole(), allPeers...)
	var names []string
	for entry := range strings.SplitSeq(whole["lanyard.dev/adopted"], ",") {
		name, _, _ := strings.Cut(entry, "=")
		names = append(names, name)
	}
	if want := []string{"aws-role-arn", "aws-token-path", "azure-client-id", "azure-token-path", "token-expiration-seconds"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	account, errs := newSettings(t).ParseServiceAccount("team", "loki", own(whole))
	if len(errs) > 0 || account == nil {
		t.Errorf("got %v and errors %v", account, errs)
	}
}

// own returns the annotations under Lanyard's prefix.
func own(whole map[string]string) map[string]string {
	result := map[string]string{}
	for key, value := range whole {
		if strings.HasPrefix(key, "lanyard.dev/") {
			result[key] = value
		}
	}
	return result
}

// If a flag of the peer sets the audience, a flag of Lanyard sets it, too.
func TestTheClustersAudienceIsNotOverridden(t *testing.T) {
	t.Parallel()
	a := peer.Adopt(newSettings(t), peersNamed(t, "gcp"), values{gcpName: gcpPool, gcpEmail: email}.whole())
	if audience, found := a.Set["lanyard.dev/gcp-audience"]; found {
		t.Errorf("got audience %s", audience)
	}
}

func TestPeersNamed(t *testing.T) {
	t.Parallel()
	if _, err := peer.Named([]string{"eks", "aws"}); err == nil || !strings.Contains(err.Error(), `"aws", want one or more of eks, azure, gcp, gke`) {
		t.Errorf("got error %v", err)
	}
	if got := peersNamed(t, "gke", "eks", "eks"); len(got) != 2 || got[0].Name != "eks" || got[1].Name != "gke" {
		t.Errorf("got %v", got)
	}
}

// Profiles that a user wrote work with an adopted role.
func TestAdoptionLeavesProfilesAlone(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	peers, err := peer.Named([]string{"eks"})
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{"eks.amazonaws.com/role-arn": roleARN, "lanyard.dev/aws-role-arn.audit": otherRole}
	adoption := peer.Adopt(s, peers, has)
	if got := adoption.Set["lanyard.dev/aws-role-arn"]; got != roleARN || len(adoption.Remove) > 0 {
		t.Fatalf("got %+v, want the role adopted and nothing removed", adoption)
	}
	maps.Copy(has, adoption.Set)
	if again := peer.Adopt(s, peers, has); len(again.Set) > 0 || len(again.Remove) > 0 {
		t.Errorf("a second time: got %+v, want nothing", again)
	}
	delete(has, "eks.amazonaws.com/role-arn")
	gone := peer.Adopt(s, peers, has)
	for _, key := range gone.Remove {
		if key == "lanyard.dev/aws-role-arn.audit" {
			t.Errorf("got %v removed, want the profile to stay", gone.Remove)
		}
	}
}

// Tokens of a cloud must not live longer than before: the shortest lifetime counts, even if
// it is a default of a peer.
func TestTheShortestLifetimeOfSeveralPeersCounts(t *testing.T) {
	t.Parallel()
	eks, azure := values{eksRole: roleARN}, values{azClient: clientID}
	google := values{gcpName: gcpPool, gcpEmail: email}
	for sentence, tt := range map[string]struct {
		has  []values
		want string
	}{
		"EKS":                   {[]values{eks}, "86400"},
		"Azure":                 {[]values{azure}, ""},
		"EKS and Azure":         {[]values{eks, azure}, "3600"},
		"EKS and Google":        {[]values{eks, google}, "86400"},
		"EKS and GKE":           {[]values{eks, {gkeEmail: email}}, "86400"},
		"all three":             {[]values{eks, azure, google}, "3600"},
		"Azure with its own":    {[]values{eks, azure, {azExpiry: "7200"}}, "7200"},
		"EKS with a longer one": {[]values{eks, azure, {eksExpiry: "5000"}}, "3600"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			all := values{}
			for _, v := range tt.has {
				maps.Copy(all, v)
			}
			if _, own, _ := adopt(t, all.whole(), allPeers...); own["token-expiration-seconds"] != tt.want {
				t.Errorf("got %q, want %q", own["token-expiration-seconds"], tt.want)
			}
		})
	}
}

func TestAConfigurationOfAnyNameIsRecognizedByItsLabel(t *testing.T) {
	t.Parallel()
	gcp := peersNamed(t, "gcp")[0]
	registration := func(app string) peer.Registration {
		return peer.Registration{Name: "wif", Labels: map[string]string{"app.kubernetes.io/name": app}, Webhooks: []string{"mpod.kb.io"}}
	}
	if !gcp.Registers(registration("gcp-wif-webhook")) {
		t.Error("got a stranger, want the peer")
	}
	if gcp.Registers(registration("other")) {
		t.Error("got the peer, want a stranger")
	}
}

// All webhook configurations of a cluster are compared with all peers.
func TestAConfigurationBelongsToAtMostOnePeer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		registration peer.Registration
		want         string
	}{
		{peer.Registration{Name: "iam", Webhooks: []string{"other", "iam-for-pods.amazonaws.com"}}, "eks"},
		{peer.Registration{Name: "my-pod-identity-webhook-2"}, "eks"},
		{peer.Registration{Name: "wi", Webhooks: []string{"mutation.azure-workload-identity.io"}}, "azure"},
		{peer.Registration{Name: "wif", Labels: map[string]string{"app.kubernetes.io/name": "gcp-wif-webhook"}}, "gcp"},
		{peer.Registration{Name: "istio", Webhooks: []string{"rev.namespace.sidecar-injector.istio.io"}, Labels: map[string]string{"app": "istiod"}}, ""},
	} {
		var got []string
		for _, p := range peer.All() {
			if p.Registers(tt.registration) {
				got = append(got, p.Name)
			}
		}
		if strings.Join(got, ",") != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.registration, got, tt.want)
		}
	}
}

func TestAPeerIsRecognizedByItsProgram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		image   string
		command []string
		want    string
	}{
		{"example.com/amazon-eks-pod-identity-webhook:1", nil, "eks"},
		{"example.com/mirror/aws:1", []string{"/webhooks/gcp-workload-identity-federation-webhook", "--x"}, "gcp"},
		{"example.com/app:1", []string{"/app", "/webhooks/gcp-workload-identity-federation-webhook"}, ""},
		{"example.com/app:1", nil, ""},
	} {
		var got []string
		for _, p := range peer.All() {
			if p.Runs(tt.image, tt.command) {
				got = append(got, p.Name)
			}
		}
		if strings.Join(got, ",") != tt.want {
			t.Errorf("%s with %q: got %q, want %q", tt.image, tt.command, got, tt.want)
		}
	}
}

// The cache of the webhook keeps only these annotations of a ServiceAccount.
func TestAdoptionReadsOnlyWhatItTranslatesOrReports(t *testing.T) {
	t.Parallel()
	eks := peersNamed(t, "eks")[0]
	for key, want := range map[string]bool{
		eksRole: true, eksExpiry: true, "eks.amazonaws.com/sts-regional-endpoints": true,
		"eks.amazonaws.com/component": false, "eks.amazonaws.com/skip-containers": false, azClient: false,
	} {
		if got := eks.Reads(key); got != want {
			t.Errorf("%s: got %t, want %t", key, got, want)
		}
	}
}

// The ConfigMap of EKS has entries that EKS ignores.
func TestTheConfigMapOfEKS(t *testing.T) {
	t.Parallel()
	got, err := peer.Mapped(map[string]string{"config": `{
		"team/app": {"RoleARN": "a", "Audience": "b", "TokenExpiration": 600}, "team/role": {"RoleARN": "a"},
		"team/none": {"Audience": "b"}, "app": {"RoleARN": "a"}}`})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{
		"team/app":  {eksRole: "a", "eks.amazonaws.com/audience": "b", eksExpiry: "600"},
		"team/role": {eksRole: "a"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations by ServiceAccount (-want +got):\n%s", diff)
	}
	if got, err := peer.Mapped(nil); err != nil || got != nil {
		t.Errorf("nothing: got %v and error %v", got, err)
	}
	if _, err := peer.Mapped(map[string]string{"config": "x"}); err == nil {
		t.Error("got no error for a text that is not JSON")
	}
}

func TestBesideNamesTheOrderAndThePolicy(t *testing.T) {
	t.Parallel()
	gcp := peersNamed(t, "gcp")[0]
	for _, tt := range []struct {
		name  string
		again bool
		want  string
	}{
		{"gcp-wif-webhook", true, "It is called before Lanyard, with the reinvocationPolicy IfNeeded. Safe: Lanyard keeps"},
		{"wif-gcp-wif-webhook", false, "It is called after Lanyard, with the reinvocationPolicy Never. Safe: it replaces"},
		{"wif-gcp-wif-webhook", true, "It is called after Lanyard, with the reinvocationPolicy IfNeeded. Safe only while gcp is in config.adopt: it writes the container gcloud-setup again"},
	} {
		if got := gcp.Beside(peer.Registration{Name: tt.name, Again: tt.again}, "lanyard"); !strings.HasPrefix(got, tt.want) {
			t.Errorf("got %q, want it to begin with %q", got, tt.want)
		}
	}
}
