// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/migrate"
)

// mounted is a token in the containers of a pod.
type mounted struct {
	volume, path, file, audience string
	seconds                      int64
}

// podWith returns a pod whose container has tokens and variables.
func podWith(values map[string]string, tokens []mounted, variables ...string) *corev1.Pod {
	c := corev1.Container{Name: "main"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: values}}
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

func TestCompare(t *testing.T) {
	t.Parallel()
	const (
		eks     = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
		own     = "/var/run/secrets/lanyard.dev/serviceaccount"
		sts     = "sts.amazonaws.com"
		arn     = "arn:aws:iam::111122223333:role/a"
		federal = "/var/run/secrets/sts.googleapis.com/serviceaccount"
		pool    = "projects/1/locations/global/workloadIdentityPools/p/providers/c"
	)
	injected := map[string]string{"lanyard.dev/injected": "aws"}
	before := podWith(nil, []mounted{{"aws-iam-token", eks, "token", sts, 86400}}, "AWS_ROLE_ARN", arn, "AWS_WEB_IDENTITY_TOKEN_FILE", eks+"/token", "AWS_REGION", "eu-central-1", "AWS_DEFAULT_REGION", "eu-central-1")
	copies := []mounted{{"bound-sa-token", own, "aws/token", sts, 86400}, {"aws-iam-token", eks, "token", sts, 86400}}
	variables := []string{"AWS_ROLE_ARN", arn, "AWS_WEB_IDENTITY_TOKEN_FILE", own + "/aws/token", "AWS_REGION", "eu-central-1"}
	google := podWith(map[string]string{"cloud.google.com/workload-identity-provider": pool, "cloud.google.com/service-account-email": "a@b.iam.gserviceaccount.com"},
		[]mounted{{"gcp-iam-token", federal, "token", "sts.googleapis.com", 86400}}, "GOOGLE_APPLICATION_CREDENTIALS", "/var/run/secrets/gcloud/config/federation.json")
	google.Spec.InitContainers = []corev1.Container{{Name: "gcloud-setup"}}
	file := `{"audience":"//iam.googleapis.com/` + pool + `","service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken","credential_source":{"file":"` + own + `/gcp/token"}}`
	googleNew := func(audience string) *corev1.Pod {
		return podWith(map[string]string{"lanyard.dev/injected": "gcp", "lanyard.dev/gcp-credentials": file},
			[]mounted{{"bound-sa-token", own, "gcp/token", audience, 86400}, {"gcp-iam-token", federal, "token", audience, 86400}}, "GOOGLE_APPLICATION_CREDENTIALS", own+"/gcp/credentials.json")
	}
	// Version 1.6 of azure-workload-identity has the token at another path.
	const moving = "/var/run/secrets/azure/wi/token"
	azure := podWith(nil, []mounted{{"azure-wi-x", moving, "azure-identity-token", "api://AzureADTokenExchange", 3600}},
		"AZURE_CLIENT_ID", "c", "AZURE_FEDERATED_TOKEN_FILE", moving+"/azure-identity-token")
	azureNew := func(file string) *corev1.Pod {
		return podWith(map[string]string{"lanyard.dev/injected": "azure"}, []mounted{{"bound-sa-token", own, "azure/token", "api://AzureADTokenExchange", 3600}},
			"AZURE_CLIENT_ID", "c", "AZURE_FEDERATED_TOKEN_FILE", file)
	}
	plain := podWith(nil, nil, "OTHER", "x")
	for sentence, tt := range map[string]struct {
		running, fresh *corev1.Pod
		state          string
		want           []migrate.Difference
	}{
		"Azure beside version 1.6, whose path no program can have in its settings": {azure, azureNew(own + "/azure/token"), migrate.Same, nil},
		"Azure beside version 1.6, and a variable that points to nothing": {azure, azureNew("/x"), migrate.Differs, []migrate.Difference{
			{"main", "Azure audience", "api://AzureADTokenExchange", ""}, {"main", "Azure lifetime", "3600 s", ""}, {"main", "Azure token", "", "none at /x"},
			{"main", "token at " + moving + "/azure-identity-token", "api://AzureADTokenExchange", ""},
		}},
		"no credentials before and after": {plain, plain, migrate.Same, nil},
		"credentials that no pod had": {plain, podWith(injected, copies[:1], variables[:4]...), migrate.Gains, []migrate.Difference{
			{"main", "AWS audience", "", sts}, {"main", "AWS lifetime", "", "86400 s"}, {"main", "AWS role", "", arn},
		}},
		"another path of the token, and a copy at the old one": {before, podWith(injected, copies, variables...), migrate.Same, nil},
		"another role": {
			before, podWith(injected, copies, "AWS_ROLE_ARN", arn+"b", "AWS_WEB_IDENTITY_TOKEN_FILE", own+"/aws/token", "AWS_REGION", "eu-central-1"), migrate.Differs,
			[]migrate.Difference{{"main", "AWS role", arn, arn + "b"}},
		},
		"no region": {before, podWith(injected, copies, variables[:4]...), migrate.Loses, []migrate.Difference{{"main", "AWS region", "eu-central-1", ""}}},
		"no copy at the old path": {
			before, podWith(injected, copies[:1], variables...), migrate.Loses,
			[]migrate.Difference{{"main", "token at " + eks + "/token", sts, ""}},
		},
		"another audience and lifetime": {
			before, podWith(injected, []mounted{{"bound-sa-token", own, "aws/token", "other", 3600}, copies[1]}, variables...), migrate.Differs,
			[]migrate.Difference{{"main", "AWS audience", sts, "other"}, {"main", "AWS lifetime", "86400 s", "3600 s"}},
		},
		"a variable that points to nothing": {
			before, podWith(injected, copies[1:], variables...), migrate.Differs,
			[]migrate.Difference{
				{"main", "AWS audience", sts, ""}, {"main", "AWS lifetime", "86400 s", ""}, {"main", "AWS token", "", "none at " + own + "/aws/token"},
			},
		},
		"the peer alone": {before, before, migrate.Differs, []migrate.Difference{{"", "injected by Lanyard", "", "no"}}},
		"a token of another cloud": {
			before, podWith(injected, copies, append(variables, "AZURE_CLIENT_ID", "c")...), migrate.Gains,
			[]migrate.Difference{{"main", "Azure client", "", "c"}},
		},
		"Google, without the container of the peer": {google, googleNew("sts.googleapis.com"), migrate.Same, nil},
		"Google with another audience": {
			google, googleNew("x"), migrate.Differs,
			[]migrate.Difference{{"main", "Google audience", "sts.googleapis.com", "x"}, {"main", "token at " + federal + "/token", "sts.googleapis.com", "x"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			state, got := migrate.Compare(newSettings(t), tt.running, tt.fresh)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := tt.state; state != want {
				t.Errorf("got the state %s, want %s", state, want)
			}
		})
	}
}

func TestPodsWithoutACloudsToken(t *testing.T) {
	t.Parallel()
	for sentence, pod := range map[string]*corev1.Pod{
		"nothing":                      podWith(nil, nil, "OTHER", "x"),
		"keys and a region":            podWith(nil, nil, "AWS_ACCESS_KEY_ID", "x", "AWS_REGION", "eu-central-1"),
		"a key of Google":              podWith(nil, nil, "GOOGLE_APPLICATION_CREDENTIALS", "/keys/key.json"),
		"a token for something else":   podWith(nil, []mounted{{"istio-token", "/var/run/secrets/tokens", "istio-token", "istio-ca", 43200}}),
		"a variable without its token": podWith(nil, nil, "AWS_ROLE_ARN", "x", "AWS_WEB_IDENTITY_TOKEN_FILE", "/a/token"),
	} {
		if migrate.HasCredentials(newSettings(t), pod) {
			t.Errorf("%s: got credentials", sentence)
		}
	}
}
