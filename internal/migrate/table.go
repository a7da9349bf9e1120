// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Place is where a peer reads something.
type Place string

// The places.
const (
	OnServiceAccount      Place = "ServiceAccount annotation"
	OnServiceAccountLabel Place = "ServiceAccount label"
	OnPod                 Place = "pod annotation"
	OnPodLabel            Place = "pod label"
	OnPodField            Place = "pod field"
	OnNamespace           Place = "Namespace annotation"
	InContainer           Place = "variable of a container"
	InConfigMap           Place = "ConfigMap"
	AsFlag                Place = "flag of the program"
	AsVariable            Place = "variable of the program"
	ByProgram             Place = "what the program does"
)

// Result is what becomes of something that was found.
type Result string

// The results.
const (
	// Translated means that an annotation of Lanyard is added.
	Translated Result = "translated"
	// NothingToDo means that Lanyard does it already, or that it has no effect.
	NothingToDo Result = "nothing to do"
	// Setting means that it is a setting of the cluster, and a value of the chart.
	Setting Result = "setting"
	// Manual means that somebody must decide, or do it elsewhere.
	Manual Result = "by hand"
	// Unsupported means that Lanyard has nothing for it.
	Unsupported Result = "not supported"
)

// Input is one thing that a peer reads, or does, and what becomes of it.
type Input struct {
	Place Place
	// Key is the whole key, or the name. A star at its end stands for any characters.
	Key string
	// Result is what usually becomes of it.
	Result Result
	// Becomes is Lanyard's annotation without the prefix, or the value of the chart.
	Becomes string
	// Note says more, in whole sentences.
	Note string
}

// matches reports whether the input is the one with the key.
func (in *Input) matches(key string) bool {
	start, isGlob := strings.CutSuffix(in.Key, "*")
	return key == in.Key || isGlob && strings.HasPrefix(key, start)
}

// Peer is a program that Lanyard takes over from: the table of what it reads, and how
// it is recognized in a cluster.
type Peer struct {
	// Name is that of --from, Program is for people.
	Name, Program string
	// Inputs is the table. It is in the documentation as it is.
	Inputs []Input

	// adopted is the peer that the webhook can adopt from; nil for none.
	adopted *annotations.Peer
	// ownPrefix starts keys that no other program has; empty if others share it.
	ownPrefix string
	// splitNames splits its list of containers to leave out.
	splitNames func(string) []string
	// programs are parts of the names of its images and commands, webhooks are the names
	// of its webhooks or parts of the names of its configurations.
	programs, webhooks []string
	// defaults are the values of flags and variables that need nothing.
	defaults map[string]string
}

// Peers returns all peers.
func Peers() []*Peer {
	peers := []*Peer{eks(), azure(), gcp(), gke(), cwii()}
	for _, adopted := range annotations.Peers() {
		i := slices.IndexFunc(peers, func(p *Peer) bool { return p.Name == adopted.Name })
		if i >= 0 {
			peers[i].adopted = adopted
		}
	}
	return peers
}

// PeerNames lists the names for --from.
func PeerNames() []string {
	var names []string
	for _, p := range Peers() {
		names = append(names, p.Name)
	}
	return names
}

// input returns the row of the table, or nil.
func (p *Peer) input(place Place, key string) *Input {
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Place == place && in.matches(key) {
			return in
		}
	}
	return nil
}

// reads reports whether the peer reads any key of a map at the place, or has a key of
// its own there.
func (p *Peer) reads(place Place, values map[string]string) bool {
	for key := range values {
		if p.input(place, key) != nil || p.ownPrefix != "" && strings.HasPrefix(key, p.ownPrefix) {
			return true
		}
	}
	return false
}

// Keys of the peers that have a rule of their own.
const (
	eksRole          = "eks.amazonaws.com/role-arn"
	eksSkipWebhook   = "eks.amazonaws.com/skip-pod-identity-webhook"
	eksConfigMap     = "pod-identity-webhook"
	azureUse         = "azure.workload.identity/use"
	azureClient      = "azure.workload.identity/client-id"
	azureConfigMap   = "azure-wi-webhook-config"
	azureEnvironment = "AZURE_ENVIRONMENT"
	gkeNodes         = "iam.gke.io/gke-metadata-server-enabled"
	gcpSetup         = "gcloud-setup"
)

// Suffixes of the keys of pods that two or more peers have.
const (
	skipContainers = "skip-containers"
	expiration     = "token-expiration"
)

// What several tables say.
const (
	noteExpiration = "At most 86400 seconds. A shorter lifetime than the least that the cloud can use is raised to that."
	noteSkip       = "Lanyard has one list for all clouds."
	noteFlagPrefix = "Lanyard translates the usual prefix only. With another one, write Lanyard's annotations yourself."
)

func eks() *Peer {
	const prefix = "eks.amazonaws.com/"
	return &Peer{
		Name: "eks", Program: "amazon-eks-pod-identity-webhook",
		splitNames: splitCSV,
		programs:   []string{"amazon-eks-pod-identity-webhook", "aws-pod-identity-webhook"},
		webhooks:   []string{"pod-identity-webhook.amazonaws.com", "iam-for-pods.amazonaws.com"},
		defaults: map[string]string{
			"--annotation-prefix": "eks.amazonaws.com", "--token-audience": "sts.amazonaws.com",
			"--token-mount-path": "/var/run/secrets/eks.amazonaws.com/serviceaccount", "--token-expiration": "86400",
		},
		Inputs: []Input{
			{OnServiceAccount, eksRole, Translated, "aws-role-arn", "Also adds `aws-token-path`, so that the old path of the token stays."},
			{OnServiceAccount, prefix + "audience", Translated, "aws-audience", "An empty audience is not taken over: the token would be for the API server."},
			{OnServiceAccount, prefix + "token-expiration", Translated, "token-expiration-seconds", noteExpiration + " Without it, 86400, as before."},
			{OnServiceAccount, prefix + "sts-regional-endpoints", NothingToDo, "", "Pods always get `AWS_STS_REGIONAL_ENDPOINTS=regional`. A container that sets it keeps its value."},
			{OnPod, prefix + expiration, Translated, "token-expiration-seconds", noteExpiration},
			{OnPod, prefix + skipContainers, Translated, "skip-containers", noteSkip + " A name after a comma and a space never matched, and is left out."},
			{OnPodLabel, eksSkipWebhook, Translated, "inject", "`\"false\"`: the pod gets no credentials of any cloud."},
			{InContainer, "AWS_CONTAINER_CREDENTIALS_FULL_URI", Unsupported, "", "The container uses EKS Pod Identity. Create a role that trusts the cluster's issuer, annotate the ServiceAccount, and remove the variable."},
			{InConfigMap, eksConfigMap, Translated, "aws-role-arn", "Entries become annotations. Those of ServiceAccounts that were not found become `config.identities`."},
			{AsFlag, "--annotation-prefix", Manual, "", noteFlagPrefix},
			{AsFlag, "--token-audience", Setting, "config.aws-default-audience", ""},
			{AsFlag, "--token-mount-path", Manual, "aws-token-path", "Set it on the ServiceAccounts whose programs have the old path in their settings."},
			{AsFlag, "--token-expiration", Manual, "token-expiration-seconds", "ServiceAccounts without an annotation get 86400. Change it where that matters."},
			{AsFlag, "--aws-default-region", Setting, "config.aws-default-region", ""},
			{AsFlag, "--sts-regional-endpoint", NothingToDo, "", "Pods always get `AWS_STS_REGIONAL_ENDPOINTS=regional`."},
			{AsFlag, "--compose-role-arn", Manual, "config.aws-role-arn-prefix", "Write out the account: `arn:aws:iam::111122223333:role/`. The program asked the node for it."},
			{AsFlag, "--watch-config-map", NothingToDo, "", "See the ConfigMap."},
			{AsFlag, "--watch-container-credentials-config", Unsupported, "", "Annotate these ServiceAccounts with roles that trust the cluster's issuer."},
			{AsFlag, "--service-account-lookup-grace-period", NothingToDo, "", "Lanyard reads a ServiceAccount that it does not know from the API server."},
			{AsFlag, "--resync-period", NothingToDo, "", ""},
		},
	}
}

func azure() *Peer {
	const prefix = "azure.workload.identity/"
	return &Peer{
		Name: "azure", Program: "azure-workload-identity", ownPrefix: prefix,
		splitNames: func(value string) []string { return splitTrimmed(value, ";") },
		programs:   []string{"azure/workload-identity/webhook", "azure-workload-identity-webhook"},
		webhooks:   []string{"mutation.azure-workload-identity.io"},
		defaults:   map[string]string{"--audience": "api://AzureADTokenExchange", azureEnvironment: "AzurePublicCloud"},
		Inputs: []Input{
			{OnServiceAccount, azureClient, Translated, "azure-client-id", "Also adds `azure-token-path`, the path of the versions before 1.6."},
			{OnServiceAccount, prefix + "tenant-id", Translated, "azure-tenant-id", "If it is empty, the tenant is the cluster's default."},
			{OnServiceAccount, prefix + "service-account-token-expiration", Translated, "token-expiration-seconds", "3600 to 86400, as before."},
			{OnServiceAccountLabel, azureUse, NothingToDo, "", "It has had no effect since version 1.0."},
			{OnPodLabel, azureUse, Translated, "tokens", "If the ServiceAccount has a client ID, nothing to do: it alone asks for credentials. If it has none, it gets `tokens: azure`."},
			{OnPod, prefix + "service-account-token-expiration", Translated, "token-expiration-seconds", "3600 to 86400, as before."},
			{OnPod, prefix + skipContainers, Translated, "skip-containers", noteSkip + " It has commas instead of semicolons."},
			{OnPod, prefix + "inject-proxy-sidecar", Unsupported, "", "Use an SDK that knows workload identity, or write the two containers of the proxy into the pod."},
			{OnPod, prefix + "proxy-sidecar-port", Unsupported, "", "See `inject-proxy-sidecar`."},
			{OnPod, prefix + "use-*", Unsupported, "", "Identity bindings need AKS. Use a client ID with a federated credential."},
			{AsFlag, "--audience", Setting, "config.azure-default-audience", ""},
			{AsVariable, "AZURE_TENANT_ID", Setting, "config.azure-default-tenant-id", "Also read from the ConfigMap `azure-wi-webhook-config`."},
			{AsVariable, azureEnvironment, Setting, "config.azure-authority-host", "The name of the cloud becomes the URL of its authority."},
			{AsVariable, "AZURE_KUBERNETES_*", Unsupported, "", "Identity bindings need AKS."},
			{ByProgram, "pods without the label get nothing", Manual, "inject", "With Lanyard, every pod of an annotated ServiceAccount gets credentials. Pods that must not are listed."},
		},
	}
}

func gcp() *Peer {
	const prefix = "cloud.google.com/"
	return &Peer{
		Name: "gcp", Program: "gcp-workload-identity-federation-webhook",
		splitNames: func(value string) []string {
			return slices.DeleteFunc(splitTrimmed(value, ","), func(name string) bool { return name == gcpSetup })
		},
		programs: []string{"gcp-workload-identity-federation-webhook"},
		webhooks: []string{"gcp-wif-webhook", "gcp-workload-identity-federation-webhook"},
		defaults: map[string]string{
			"--annotation-prefix": "cloud.google.com", "--token-audience": "sts.googleapis.com", "--token-expiration": "24h", "--gcp-default-region": "",
		},
		Inputs: []Input{
			{OnServiceAccount, prefix + "workload-identity-provider", Translated, "gcp-workload-identity-provider", "Only together with the e-mail. Also adds `gcp-token-path`, so that the old path of the token stays."},
			{OnServiceAccount, prefix + "service-account-email", Translated, "gcp-service-account", "Only together with the provider."},
			{OnServiceAccount, prefix + "audience", Translated, "gcp-audience", "Without it, `sts.googleapis.com`, as before. An empty one is not taken over."},
			{OnServiceAccount, prefix + "token-expiration", Translated, "token-expiration-seconds", noteExpiration + " Without it, 86400, as before."},
			{OnServiceAccount, prefix + "gcloud-run-as-user", NothingToDo, "", "Lanyard adds no container that runs gcloud."},
			{OnServiceAccount, prefix + "injection-mode", NothingToDo, "", "The kubelet writes the credential file, as with `direct`."},
			{OnPod, prefix + expiration, Translated, "token-expiration-seconds", noteExpiration},
			{OnPod, prefix + skipContainers, Translated, "skip-containers", noteSkip},
			{InContainer, "GOOGLE_APPLICATION_CREDENTIALS", Manual, "", "The program replaced it. With Lanyard, the container keeps it and gets nothing of Google: remove it."},
			{InContainer, "CLOUDSDK_CONFIG", Manual, "", "The program replaced it. With Lanyard, the container keeps it: check that gcloud may write there."},
			{AsFlag, "--annotation-prefix", Manual, "", noteFlagPrefix},
			{AsFlag, "--token-audience", Setting, "config.gcp-default-audience", "ServiceAccounts without an annotation are written with `sts.googleapis.com` unless this is set."},
			{AsFlag, "--token-expiration", Manual, "token-expiration-seconds", "ServiceAccounts without an annotation get 86400. Change it where that matters."},
			{AsFlag, "--gcp-default-region", Unsupported, "", "Set `CLOUDSDK_COMPUTE_REGION` in the containers that need it."},
			{AsFlag, "--default-injection-mode", NothingToDo, "", "The kubelet writes the credential file, as with `direct`."},
			{AsFlag, "--token-default-mode", NothingToDo, "", "The files can be read by every user of the container (0644)."},
			{AsFlag, "--gcloud-image", NothingToDo, "", "Lanyard adds no container."},
			{AsFlag, "--setup-container-resources", NothingToDo, "", "Lanyard adds no container."},
			{ByProgram, "the login of gcloud, and gsutil", Unsupported, "", "gcloud uses the credential file by `CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE`. gsutil does not: use `gcloud storage`."},
		},
	}
}

func gke() *Peer {
	return &Peer{
		Name: "gke", Program: "GKE",
		Inputs: []Input{
			{OnServiceAccount, "iam.gke.io/gcp-service-account", Translated, "gcp-service-account", "The cluster must have `config.gcp-default-workload-identity-provider`."},
			{OnPodField, gkeNodes, Manual, "", "Remove the node selector: nodes outside GKE do not have the label."},
			{ByProgram, "the metadata server", Unsupported, "", "Programs that ask it for the project, the zone or a token must be told these. Client libraries read the credential file instead."},
		},
	}
}

func cwii() *Peer {
	inputs := []Input{}
	both := func(name string, result Result, becomes, note string) {
		inputs = append(inputs, Input{OnServiceAccount, cwiiPrefix + name, result, becomes, note})
	}
	both("aws-inject", NothingToDo, "", "Read together with the role. `\"true\"` on the ServiceAccount or its Namespace turns it on.")
	both("aws-role-arn", Translated, "aws-role-arn", "")
	both("aws-region", Translated, "aws-region", "")
	both("aws-role-session-name", Unsupported, "", "The session name is SERVICEACCOUNT@NAMESPACE. Check the conditions of the role.")
	both("aws-audience", Translated, "aws-audience", "")
	both("aws-token-expiration", Translated, "token-expiration-seconds", "Lanyard has one lifetime for all clouds, the shortest.")
	both("az-inject", NothingToDo, "", "Read together with the client ID and the tenant.")
	both("az-client-id", Translated, "azure-client-id", "Only together with the tenant.")
	both("az-tenant-id", Translated, "azure-tenant-id", "Only together with the client ID.")
	both("az-authority-host", Setting, "config.azure-authority-host", "Lanyard has one authority for the cluster.")
	both("az-audience", Translated, "azure-audience", "")
	both("az-token-expiration", Translated, "token-expiration-seconds", "At least 3600 with Azure.")
	both("gcp-inject", NothingToDo, "", "Read together with the audience.")
	both("gcp-audience", Translated, "gcp-workload-identity-provider", "The name of the provider. It also becomes `gcp-audience`, so that the token stays as it is.")
	both("gcp-service-account", Translated, "gcp-service-account", "")
	both("gcp-token-expiration", Translated, "token-expiration-seconds", "Lanyard has one lifetime for all clouds, the shortest.")
	both("gcp-delivery", NothingToDo, "", "The kubelet writes the credential file. There is no ConfigMap and no container.")
	for _, provider := range []string{"aws", "az", "gcp"} {
		both(provider+"-verify*", Unsupported, "", "Lanyard adds no containers. `lanyard token` shows whether the cloud accepts a token.")
	}
	return &Peer{
		Name: "cwii", Program: "cwii", ownPrefix: cwiiPrefix,
		programs: []string{"/cwii"},
		webhooks: []string{"mutate.cwii.dev"},
		defaults: map[string]string{
			"--aws-default-audience": "sts.amazonaws.com", "--az-default-audience": "api://AzureADTokenExchange",
			"--token-expiration": "3600", "--mount-root": "/var/run/secrets/cwii.dev", "--native-annotations": "false",
		},
		Inputs: append(inputs,
			Input{OnPod, cwiiPrefix + "injected", NothingToDo, "", "cwii writes it."},
			Input{OnPod, cwiiPrefix + "*", Manual, "", "A pod cannot choose its identity. Annotate its ServiceAccount, or give it one of its own."},
			Input{OnNamespace, cwiiPrefix + "*", Manual, "", "Annotate the ServiceAccounts of the namespace, or map them in `config.identities`."},
			Input{AsFlag, "--aws-default-audience", Setting, "config.aws-default-audience", ""},
			Input{AsFlag, "--az-default-audience", Setting, "config.azure-default-audience", ""},
			Input{AsFlag, "--gcp-default-audience", Setting, "config.gcp-default-workload-identity-provider", "The name of the provider, which is the audience."},
			Input{AsFlag, "--token-expiration", Manual, "token-expiration-seconds", "Lanyard's default is 3600, too."},
			Input{AsFlag, "--native-annotations", Manual, "", "Also run `lanyard migrate` with `--from eks,azure,gke`."},
			Input{AsFlag, "--mount-root", Manual, "aws-token-path", "The path of the tokens changes. Set this, or the same of another cloud, where a program has the old path in its settings."},
		),
	}
}
