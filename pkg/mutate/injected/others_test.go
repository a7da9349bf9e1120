// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/test/support/peers"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// mounted is a token in the containers of a pod.
type mounted struct {
	volume, path, file, audience string
	seconds                      int64
}

// podWith returns a pod whose container has tokens and variables.
func podWith(values map[string]string, tokens []mounted, variables ...string) *corev1.Pod {
	c := corev1.Container{Name: "main"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: values}, Spec: corev1.PodSpec{ServiceAccountName: "app"}}
	for i := 0; i < len(variables); i += 2 {
		c.Env = append(c.Env, corev1.EnvVar{Name: variables[i], Value: variables[i+1]})
	}
	for _, m := range tokens {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m.volume, MountPath: m.path, ReadOnly: true})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: m.volume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: m.audience, ExpirationSeconds: &m.seconds, Path: m.file}}},
		}}})
	}
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

// fromSecret returns the pod with a variable from a Secret.
func fromSecret(pod *corev1.Pod, name string) *corev1.Pod {
	c := &pod.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}})
	return pod
}

// withKey returns the pod with a container that has a key of Google in a file of its own.
func withKey(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "own", Env: []corev1.EnvVar{{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "/keys/key.json"}}})
	return pod
}

// onWindows returns the pod for Windows nodes.
func onWindows(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	return pod
}

func readPod(t testing.TB, s *annotations.Settings, pod *corev1.Pod) *injected.Pod {
	t.Helper()
	read, err := injected.Read(pod, s)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

const (
	eksPath    = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
	ownPath    = annotations.DefaultTokenMountPath
	movingPath = "/var/run/secrets/azure/wi/token" // of azure-workload-identity 1.6
	sts        = "sts.amazonaws.com"
	entra      = "api://AzureADTokenExchange"
)

// The API server returns the new pod, which can contain anything.
func TestAPodOfAnotherWebhookIsComparedByMeaning(t *testing.T) {
	t.Parallel()
	const federal = "/var/run/secrets/sts.googleapis.com/serviceaccount"
	byLanyard := map[string]string{"lanyard.dev/injected": "aws"}
	before := podWith(nil, []mounted{{"aws-iam-token", eksPath, "token", sts, 86400}}, ownRole, role, tokenFile, eksPath+"/token", region, "eu-central-1", "AWS_DEFAULT_REGION", "eu-central-1")
	copies := []mounted{{"bound-sa-token", ownPath, "aws/token", sts, 86400}, {"aws-iam-token", eksPath, "token", sts, 86400}}
	regions := []string{region, "eu-central-1", "AWS_DEFAULT_REGION", "eu-central-1"}
	variables := append([]string{ownRole, role, tokenFile, ownPath + "/aws/token"}, regions...)
	other := append([]string{ownRole, role + "2", tokenFile, ownPath + "/aws/token"}, regions...)
	google := podWith(map[string]string{"cloud.google.com/workload-identity-provider": gcpPool, "cloud.google.com/service-account-email": gcpAccount},
		[]mounted{{"gcp-iam-token", federal, "token", "sts.googleapis.com", 86400}}, "GOOGLE_APPLICATION_CREDENTIALS", "/var/run/secrets/gcloud/config/federation.json")
	google.Spec.InitContainers = []corev1.Container{{Name: "gcloud-setup"}}
	content := func(email string) string {
		return `{"audience":"//iam.googleapis.com/` + gcpPool + `","service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/` + email + `:generateAccessToken","credential_source":{"file":"` + ownPath + `/gcp/token"}}`
	}
	googleNew := func(audience, email, file string) *corev1.Pod {
		return podWith(map[string]string{"lanyard.dev/injected": "gcp", "lanyard.dev/gcp-credentials": content(email)},
			[]mounted{{"bound-sa-token", ownPath, "gcp/token", audience, 86400}, {"gcp-iam-token", federal, "token", audience, 86400}}, "GOOGLE_APPLICATION_CREDENTIALS", file)
	}
	azureOld := podWith(nil, []mounted{{"azure-wi-x", movingPath, "azure-identity-token", entra, 3600}}, "AZURE_CLIENT_ID", clientID, "AZURE_FEDERATED_TOKEN_FILE", movingPath+"/azure-identity-token")
	azureNew := func(file string) *corev1.Pod {
		return podWith(map[string]string{"lanyard.dev/injected": "azure"}, []mounted{{"bound-sa-token", ownPath, "azure/token", entra, 3600}}, "AZURE_CLIENT_ID", clientID, "AZURE_FEDERATED_TOKEN_FILE", file)
	}
	for sentence, tt := range map[string]struct {
		running, fresh *corev1.Pod
		state          injected.State
		want           []injected.Difference
	}{
		"Azure beside version 1.6, whose path no program can have in its settings": {azureOld, azureNew(ownPath + "/azure/token"), injected.Current, nil},
		"Azure beside version 1.6, and a variable that points to nothing": {azureOld, azureNew("/x"), injected.Stale, []injected.Difference{
			{Container: "main", Field: "AZURE_FEDERATED_TOKEN_FILE", Want: "a file of its own"}, {Container: "main", Field: "azure-audience", Got: entra},
			{Container: "main", Field: "token-expiration-seconds", Got: "3600", Minor: true},
		}},
		"another path of the token, and a copy at the old one": {before, podWith(byLanyard, copies, variables...), injected.Current, nil},
		"another role": {before, podWith(byLanyard, copies, other...), injected.Stale, []injected.Difference{{Container: "main", Field: "aws-role-arn", Got: role, Want: role + "2"}}},
		"a role that is no role, which is not shown": {
			podWith(nil, copies[1:], append([]string{ownRole, "secret", tokenFile, eksPath + "/token"}, regions...)...), podWith(byLanyard, copies, variables...), injected.Stale,
			[]injected.Difference{{Container: "main", Field: "aws-role-arn", Got: "a value", Want: role}},
		},
		"no role, but the token": {before, podWith(byLanyard, copies, variables[2:]...), injected.Stale, []injected.Difference{{Container: "main", Field: "aws-role-arn", Got: role}}},
		"no region, which is minor": {before, podWith(byLanyard, copies, variables[:4]...), injected.Current, []injected.Difference{
			{Container: "main", Field: "aws-region", Got: "a value", Minor: true},
		}},
		"another region, which is minor and not shown": {before, podWith(byLanyard, copies, append(slices.Clone(variables[:4]), region, "eu-west-1")...), injected.Current, []injected.Difference{
			{Container: "main", Field: "aws-region", Got: "a value", Want: "another value", Minor: true},
		}},
		"a session name and an endpoint of STS, which do not matter": {before, podWith(byLanyard, copies, append(slices.Clone(variables), "AWS_ROLE_SESSION_NAME", "x", "AWS_STS_REGIONAL_ENDPOINTS", "regional")...), injected.Current, nil},
		"no copy at the old path, which is minor": {
			before, podWith(byLanyard, copies[:1], variables...), injected.Current,
			[]injected.Difference{{Container: "main", Field: "aws-token-path", Got: eksPath + "/token", Minor: true}},
		},
		"another audience and lifetime": {
			before, podWith(byLanyard, []mounted{{"bound-sa-token", ownPath, "aws/token", "other", 3600}, copies[1]}, variables...), injected.Stale,
			[]injected.Difference{{Container: "main", Field: "aws-audience", Got: sts, Want: "other"}, {Container: "main", Field: "token-expiration-seconds", Got: "86400", Want: "3600", Minor: true}},
		},
		"another lifetime, which is minor": {
			before, podWith(byLanyard, []mounted{{"bound-sa-token", ownPath, "aws/token", sts, 3600}, copies[1]}, variables...), injected.Current,
			[]injected.Difference{{Container: "main", Field: "token-expiration-seconds", Got: "86400", Want: "3600", Minor: true}},
		},
		"a variable that points to nothing": {
			before, podWith(byLanyard, copies[1:], variables...), injected.Stale,
			[]injected.Difference{
				{Container: "main", Field: tokenFile, Want: "a file of its own"}, {Container: "main", Field: "aws-audience", Got: sts},
				{Container: "main", Field: "token-expiration-seconds", Got: "86400", Minor: true},
			},
		},
		"a new pod gets nothing": {before, podWith(nil, nil), injected.Stale, []injected.Difference{
			{Container: "main", Field: "aws-audience", Got: sts}, {Container: "main", Field: "aws-region", Got: "a value", Minor: true}, {Container: "main", Field: "aws-role-arn", Got: role},
			{Container: "main", Field: "token-expiration-seconds", Got: "86400", Minor: true}, {Container: "main", Field: "aws-token-path", Got: eksPath + "/token", Minor: true},
		}},
		"no such container any more": {before, &corev1.Pod{}, injected.Stale, []injected.Difference{
			{Container: "main", Field: "aws-audience", Got: sts}, {Container: "main", Field: "aws-region", Got: "a value", Minor: true}, {Container: "main", Field: "aws-role-arn", Got: role},
			{Container: "main", Field: "token-expiration-seconds", Got: "86400", Minor: true}, {Container: "main", Field: "aws-token-path", Got: eksPath + "/token", Minor: true},
		}},
		"the other webhook alone, which is still there": {before, before, injected.Unknown, nil},
		"one more cloud": {
			before, podWith(byLanyard, copies, append(slices.Clone(variables), "AZURE_CLIENT_ID", clientID)...), injected.Stale,
			[]injected.Difference{{Container: "main", Field: "azure-client-id", Want: clientID}},
		},
		"a profile": {
			before, podWith(map[string]string{"lanyard.dev/injected": "aws", "lanyard.dev/aws-config": "x"}, copies, append(slices.Clone(variables), "AWS_CONFIG_FILE", ownPath+"/aws/config")...), injected.Stale,
			[]injected.Difference{{Container: "main", Field: "AWS_CONFIG_FILE", Want: "a file of Lanyard"}},
		},
		"a role from a Secret": {
			fromSecret(podWith(nil, copies[1:], append([]string{tokenFile, eksPath + "/token"}, regions...)...), ownRole), podWith(byLanyard, copies, variables...), injected.Stale,
			[]injected.Difference{{Container: "main", Field: "aws-role-arn", Got: "a value from elsewhere", Want: role}},
		},
		"Google, and a container with a key of its own": {withKey(google), withKey(googleNew("sts.googleapis.com", gcpAccount, ownPath+"/gcp/credentials.json")), injected.Current, nil},
		"Google, without the container of the peer":     {google, googleNew("sts.googleapis.com", gcpAccount, ownPath+"/gcp/credentials.json"), injected.Current, nil},
		"Google with another audience": {
			google, googleNew("x", gcpAccount, ownPath+"/gcp/credentials.json"), injected.Stale, []injected.Difference{{Container: "main", Field: "gcp-audience", Got: "sts.googleapis.com", Want: "x"}},
		},
		"Google with another service account": {
			google, googleNew("sts.googleapis.com", "b"+gcpAccount, ownPath+"/gcp/credentials.json"), injected.Stale, []injected.Difference{{Container: "main", Field: "gcp-service-account", Got: gcpAccount, Want: "b" + gcpAccount}},
		},
		"Google with a file that is not known": {
			google, googleNew("sts.googleapis.com", gcpAccount, "/own/credentials.json"), injected.Stale, []injected.Difference{
				{Container: "main", Field: "GOOGLE_APPLICATION_CREDENTIALS", Want: "a file of its own"}, {Container: "main", Field: "gcp-audience", Got: "sts.googleapis.com"},
				{Container: "main", Field: "gcp-service-account", Got: gcpAccount}, {Container: "main", Field: "gcp-workload-identity-provider", Got: gcpPool},
				{Container: "main", Field: "token-expiration-seconds", Got: "86400", Minor: true},
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newSettings(t)
			got := readPod(t, s, tt.running).Against(readPod(t, s, tt.fresh))
			if diff := cmp.Diff(tt.want, got.Differences); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.State != tt.state {
				t.Errorf("got the state %s, want %s", got.State, tt.state)
			}
		})
	}
}

func TestPodsThatNoOtherWebhookInjected(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	for sentence, pod := range map[string]*corev1.Pod{
		"nothing":                      podWith(nil, nil, "OTHER", "x"),
		"keys and a region":            podWith(nil, nil, "AWS_ACCESS_KEY_ID", "x", region, "eu-central-1"),
		"a key of Google":              podWith(nil, nil, "GOOGLE_APPLICATION_CREDENTIALS", "/keys/key.json"),
		"a token for something else":   podWith(nil, []mounted{{"istio-token", "/var/run/secrets/tokens", "istio-token", "istio-ca", 43200}}),
		"a variable without its token": podWith(nil, nil, ownRole, role, tokenFile, "/a/token"),
		"a token of the user's own":    podWith(nil, []mounted{{"own", "/own", "token", sts, 3600}}, ownRole, role, tokenFile, "/own/token"),
		"a variable of the user's own": podWith(nil, []mounted{{"aws-iam-token", eksPath, "token", sts, 86400}}, "MY_TOKEN", eksPath+"/token"),
		"both webhooks":                podWith(map[string]string{"lanyard.dev/injected": "aws"}, []mounted{{"aws-iam-token", eksPath, "token", sts, 86400}}, tokenFile, eksPath+"/token"),
	} {
		if readPod(t, s, pod).OfOthers() {
			t.Errorf("%s: got a pod of another webhook", sentence)
		}
	}
}

// theirs contains annotations of ServiceAccounts that other webhooks read, the stand-in that
// reads them, and a change of the identity.
var theirs = []struct {
	peers  []peers.Peer
	values map[string]string
	change map[string]string
	field  string
}{
	{[]peers.Peer{&peers.EKS{}, &peers.EKS{AWSDefaultRegion: "eu-central-1", STSRegionalEndpoint: true}}, eksValues, map[string]string{"eks.amazonaws.com/role-arn": role + "2"}, "aws-role-arn"},
	{[]peers.Peer{&peers.EKS{}}, eksValues, map[string]string{"eks.amazonaws.com/audience": "other"}, "aws-audience"},
	{[]peers.Peer{&peers.Azure{}, &peers.Azure{Version: peers.AzureOlder}}, azureValues, map[string]string{"azure.workload.identity/client-id": "00000000-0000-0000-0000-000000000002"}, "azure-client-id"},
	{[]peers.Peer{&peers.Azure{}, &peers.Azure{Version: peers.AzureOlder}}, azureValues, map[string]string{"azure.workload.identity/tenant-id": "other.example"}, "azure-tenant-id"},
	{[]peers.Peer{&peers.GCP{}}, googleValues, map[string]string{"cloud.google.com/service-account-email": "b" + gcpAccount}, "gcp-service-account"},
	{[]peers.Peer{&peers.GCP{}}, googleValues, map[string]string{"cloud.google.com/workload-identity-provider": gcpPool + "2"}, "gcp-workload-identity-provider"},
	{[]peers.Peer{&peers.GCP{}}, map[string]string{"cloud.google.com/workload-identity-provider": gcpPool, "cloud.google.com/service-account-email": gcpAccount, "cloud.google.com/injection-mode": "direct"}, map[string]string{"cloud.google.com/service-account-email": "b" + gcpAccount}, "gcp-service-account"},
	{[]peers.Peer{&peers.GCP{}, &peers.GCP{Newest: true}, &peers.GCP{Newest: true, DefaultInjectionMode: "gcloud"}}, googleValues, map[string]string{"cloud.google.com/audience": "other"}, "gcp-audience"},
}

var (
	eksValues    = map[string]string{"eks.amazonaws.com/role-arn": role}
	azureValues  = map[string]string{"azure.workload.identity/client-id": clientID, "azure.workload.identity/tenant-id": "contoso.example"}
	googleValues = map[string]string{"cloud.google.com/workload-identity-provider": gcpPool, "cloud.google.com/service-account-email": gcpAccount}
)

// adopted returns a ServiceAccount as Lanyard adopts it.
func adopted(s *annotations.Settings, values ...map[string]string) *annotations.Object {
	all := map[string]string{}
	for _, some := range values {
		maps.Copy(all, some)
	}
	maps.Copy(all, peer.Adopt(s, peer.All(), all).Set)
	return &annotations.Object{Namespace: "team", Name: "app", Annotations: all}
}

// FuzzCompareOthers checks that a pod that another webhook injected is current after Lanyard has
// adopted the annotations of its ServiceAccount, and stale after a change of the identity.
func FuzzCompareOthers(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	s := newSettings(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		test := theirs[r.IntN(len(theirs))]
		pod := randomOfOthers(t, r, test.peers[r.IntN(len(test.peers))], test.values)
		now := adopted(s, test.values)
		got, err := injected.NewComparer(s, now, nil).Compare(pod, false)
		if err != nil || got.State != injected.Current || slices.ContainsFunc(got.Differences, func(d injected.Difference) bool { return d.Field != "aws-region" && d.Field != "CLOUDSDK_CONFIG" }) {
			t.Fatalf("got %s, error %v and %v, want current:\n%v\n%s", got.State, err, got.Differences, now.Annotations, pod)
		}
		after := adopted(s, test.values, test.change)
		got, err = injected.NewComparer(s, after, nil).Compare(pod, false)
		if err != nil || got.State != injected.Stale || !slices.ContainsFunc(got.Differences, func(d injected.Difference) bool { return d.Field == test.field && d.Got != "" && d.Want != "" }) {
			t.Errorf("after %v: got %s, error %v and %v, want stale because of %s:\n%s", test.change, got.State, err, got.Differences, test.field, pod)
		}
		if got, err = injected.NewComparer(s, account(), nil).Compare(pod, false); err != nil || got.State != injected.Stale {
			t.Errorf("without an identity: got %s and error %v, want stale", got.State, err)
		}
	})
}

// randomOfOthers returns the JSON of a random pod with the changes of another webhook. The
// containers have no credentials of their own, and nothing else at the paths of the tokens.
func randomOfOthers(t *testing.T, r *rand.Rand, other peers.Peer, values map[string]string) []byte {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(encode(t, randpod.New(r)), &pod); err != nil {
		t.Fatal(err)
	}
	pod.Name = "pod"
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Env = slices.DeleteFunc(list[i].Env, func(v corev1.EnvVar) bool {
				return strings.HasPrefix(v.Name, "AWS_") || strings.HasPrefix(v.Name, "AZURE_") || strings.HasPrefix(v.Name, "GOOGLE_") || strings.HasPrefix(v.Name, "GCLOUD_")
			})
			list[i].VolumeMounts = slices.DeleteFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return strings.Contains(m.MountPath, "run") })
		}
	}
	if err := other.Mutate(&pod, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: values}}); err != nil {
		t.Fatal(err)
	}
	return encode(t, pod)
}

// Users also set variables themselves, in addition to the token of another webhook.
func TestVariablesOfAContainerBesideAnotherWebhook(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Parameters = maps.Clone(s.Parameters)
	s.Parameters["aws-region"], s.Parameters["azure-tenant-id"] = "eu-central-1", "contoso.example"
	eks := []mounted{{"aws-iam-token", eksPath, "token", sts, 86400}}
	entraToken := []mounted{{"azure-identity-token", "/var/run/secrets/azure/tokens", "azure-identity-token", entra, 3600}}
	for sentence, tt := range map[string]struct {
		pod     *corev1.Pod
		account *annotations.Object
		want    injected.State
	}{
		"a region of its own":                   {podWith(nil, eks, region, "eu-west-1", ownRole, role, tokenFile, eksPath+"/token"), adopted(s, eksValues), injected.Current},
		"a container for Windows":               {onWindows(podWith(nil, eks, ownRole, role, tokenFile, `C:`+strings.ReplaceAll(eksPath, "/", `\`)+`\token`)), adopted(s, eksValues), injected.Current},
		"an endpoint of STS":                    {podWith(nil, eks, "AWS_STS_REGIONAL_ENDPOINTS", "legacy", ownRole, role, tokenFile, eksPath+"/token"), adopted(s, eksValues), injected.Current},
		"a client of its own, and only a token": {podWith(nil, entraToken, "AZURE_CLIENT_ID", clientID, "AZURE_TENANT_ID", "contoso.example", "AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/azure/tokens/azure-identity-token", "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com"), account(map[string]string{"tokens": "azure"}), injected.Current},
		"another authority":                     {podWith(nil, entraToken, "AZURE_CLIENT_ID", clientID, "AZURE_TENANT_ID", "contoso.example", "AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/azure/tokens/azure-identity-token", "AZURE_AUTHORITY_HOST", "https://login.chinacloudapi.cn/"), adopted(s, azureValues), injected.Stale},
		"the pod opts out":                      {podWith(map[string]string{"lanyard.dev/inject": "false"}, eks, ownRole, role, tokenFile, eksPath+"/token"), adopted(s, eksValues), injected.OptedOut},
		"the pod skips the container":           {podWith(map[string]string{"lanyard.dev/skip-containers": "main"}, eks, ownRole, role, tokenFile, eksPath+"/token"), adopted(s, eksValues), injected.Stale},
		"a mistake of the ServiceAccount":       {podWith(nil, eks, ownRole, role, tokenFile, eksPath+"/token"), account(map[string]string{"aws-role-arn": "x"}), injected.Unknown},
		"a token at another path":               {podWith(nil, []mounted{{"aws-iam-token", "/custom", "token", sts, 86400}}, ownRole, role, tokenFile, "/custom/token"), adopted(s, eksValues), injected.Current},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got, err := injected.NewComparer(s, tt.account, nil).Compare(encode(t, tt.pod), false)
			if err != nil || got.State != tt.want {
				t.Errorf("got %s, error %v, denial %v and %v, want %s", got.State, err, got.Denial, got.Differences, tt.want)
			}
			if slices.ContainsFunc(got.Differences, func(d injected.Difference) bool { return d.Field == "aws-region" }) {
				t.Errorf("got %v, want no region: a container that sets one of the two variables keeps it", got.Differences)
			}
		})
	}
}

// Each comparison of such a pod lists what it loses with the other webhook.
func TestWhatAPodLosesWithAnotherWebhook(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Parameters = maps.Clone(s.Parameters)
	s.Parameters["azure-tenant-id"] = "contoso.example"
	proxy := func(value string) map[string]string {
		return map[string]string{"azure.workload.identity/inject-proxy-sidecar": value}
	}
	lost := []injected.Difference{
		{Container: "azwi-proxy", Field: "container", Got: "of azure-workload-identity"},
		{Container: "azwi-proxy-init", Field: "container", Got: "of azure-workload-identity"},
	}
	const agent = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
	for sentence, tt := range map[string]struct {
		peer        peers.Peer
		theirs      map[string]string // annotations of the ServiceAccount
		values      map[string]string // annotations of the pod
		own         []corev1.EnvVar
		account     *annotations.Object
		and         bool // Lanyard is called as well
		want        injected.State
		differences []injected.Difference
		minor       bool // these matter, too
	}{
		"the proxy of Azure":                 {peer: &peers.Azure{}, theirs: azureValues, values: proxy("true"), account: adopted(s, azureValues), want: injected.Stale, differences: lost},
		"the proxy of Azure, even if false":  {peer: &peers.Azure{}, theirs: azureValues, values: proxy("false"), account: adopted(s, azureValues), want: injected.Stale, differences: lost},
		"the proxy of Azure, of version 1.5": {peer: &peers.Azure{Version: peers.AzureOlder}, theirs: azureValues, values: proxy("true"), account: adopted(s, azureValues), want: injected.Stale, differences: lost},
		"the proxy of Azure, from both":      {peer: &peers.Azure{}, theirs: azureValues, values: proxy("true"), account: adopted(s, azureValues), and: true, want: injected.Stale, differences: lost},
		"no proxy of Azure":                  {peer: &peers.Azure{}, theirs: azureValues, account: adopted(s, azureValues), want: injected.Current},
		"no proxy of Azure, from both":       {peer: &peers.Azure{}, theirs: azureValues, account: adopted(s, azureValues), and: true, want: injected.Current},
		"EKS Pod Identity, and a role": {
			peer: &peers.EKS{ContainerCredentials: []string{"team/app"}}, theirs: eksValues, account: adopted(s, eksValues), want: injected.Stale,
			differences: []injected.Difference{
				{Container: "main", Field: agent, Got: "a token for pods.eks.amazonaws.com"},
				{Container: "main", Field: "aws-audience", Want: sts}, {Container: "main", Field: "aws-role-arn", Want: role},
			},
		},
		"EKS Pod Identity without a role": {
			peer: &peers.EKS{ContainerCredentials: []string{"team/app"}}, account: account(), want: injected.Stale,
			differences: []injected.Difference{{Container: "main", Field: agent, Got: "a token for pods.eks.amazonaws.com"}},
		},
		"a directory of gcloud": {
			peer: &peers.GCP{}, theirs: googleValues, account: adopted(s, googleValues), want: injected.Current, minor: true,
			differences: []injected.Difference{{Container: "main", Field: "CLOUDSDK_CONFIG", Got: "/var/run/secrets/gcloud/config", Minor: true}},
		},
		"a directory of gcloud from the newest webhook": {
			peer: &peers.GCP{Newest: true}, theirs: googleValues, account: adopted(s, googleValues), want: injected.Current, minor: true,
			differences: []injected.Difference{{Container: "main", Field: "CLOUDSDK_CONFIG", Got: "/var/run/secrets/gcloud/config", Minor: true}},
		},
		"a token of Azure in a file of its own": {
			peer: &peers.Azure{}, theirs: azureValues, own: []corev1.EnvVar{{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: "/own/token"}}, account: adopted(s, azureValues), want: injected.Stale,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "team", Annotations: tt.values}}
			pod.Spec = corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "main", Env: tt.own}}}
			theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: tt.theirs}}
			if err := tt.peer.Mutate(pod, theirs); err != nil {
				t.Fatal(err)
			}
			text := string(encode(t, pod))
			if tt.and {
				text, _ = inject(t, s, tt.account, text, "")
			}
			got, err := injected.NewComparer(s, tt.account, nil).Compare([]byte(text), true)
			if err != nil || got.State != tt.want {
				t.Errorf("got %s and error %v, want %s", got.State, err, tt.want)
			}
			minor := func(d injected.Difference) bool { return d.Minor && !tt.minor }
			if diff := cmp.Diff(tt.differences, slices.DeleteFunc(got.Differences, minor)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

// What the pod has of its own stays, mounted or not.
func TestRemoveAllRemovesTheCredentialsOfAnotherWebhook(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod := podWith(nil, nil, "X", eksPath)
	pod.Spec.Volumes = []corev1.Volume{{Name: "own"}}
	want := decode(t, encode(t, pod))
	theirs := podWith(nil, []mounted{{"aws-iam-token", eksPath, "token", sts, 86400}}, ownRole, role, tokenFile, eksPath+"/token")
	theirs.Spec.Volumes = slices.Concat(pod.Spec.Volumes, theirs.Spec.Volumes)
	theirs.Spec.Containers[0].Env = slices.Concat(pod.Spec.Containers[0].Env, theirs.Spec.Containers[0].Env)
	for sentence, object := range map[string]map[string]any{"no credentials": decode(t, encode(t, pod)), "credentials": decode(t, encode(t, theirs))} {
		if err := injected.RemoveAll(object, s, true, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sentence, diff)
		}
	}
	if err := injected.RemoveAll(map[string]any{"spec": 1}, s, true, nil); err == nil {
		t.Error("got no error for a spec that is a number")
	}
}

// A user can add the containers of the proxy, which every pod then has.
func TestAProxyOfTheUsersOwnStays(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "team"}}
	pod.Spec = corev1.PodSpec{ServiceAccountName: "app", InitContainers: []corev1.Container{{Name: "azwi-proxy"}}, Containers: []corev1.Container{{Name: "main"}}}
	if err := new(peers.Azure).Mutate(pod, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: azureValues}}); err != nil {
		t.Fatal(err)
	}
	got, err := injected.NewComparer(s, adopted(s, azureValues), nil).Compare(encode(t, pod), false)
	if err != nil || got.State != injected.Current || len(got.Differences) > 0 {
		t.Errorf("got %s, %v and error %v, want current", got.State, got.Differences, err)
	}
}

func TestADifferenceIsShownAsALine(t *testing.T) {
	t.Parallel()
	got := injected.Difference{Container: "main", Field: "aws-role-arn", Got: role}.String()
	if want := "main: aws-role-arn: running pod " + role + ", new pod none"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
