// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"encoding/csv"
	"path"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EKS stands in for amazon-eks-pod-identity-webhook. The zero value has its defaults.
type EKS struct {
	// AnnotationPrefix is eks.amazonaws.com by default.
	AnnotationPrefix string `json:"annotationPrefix,omitempty"`
	// TokenAudience is sts.amazonaws.com by default.
	TokenAudience string `json:"tokenAudience,omitempty"`
	// TokenMountPath is /var/run/secrets/eks.amazonaws.com/serviceaccount by default.
	TokenMountPath string `json:"tokenMountPath,omitempty"`
	// TokenExpiration is 86400 seconds by default.
	TokenExpiration int64 `json:"tokenExpiration,omitempty"`
	// AWSDefaultRegion is empty by default: no region.
	AWSDefaultRegion string `json:"awsDefaultRegion,omitempty"`
	// STSRegionalEndpoint is false by default.
	STSRegionalEndpoint bool `json:"stsRegionalEndpoint,omitempty"`
	// ComposeRoleARN is the prefix that --compose-role-arn puts before a role's name.
	ComposeRoleARN string `json:"composeRoleARN,omitempty"`
	// ConfigMap is the content of the ConfigMap pod-identity-webhook, which is read with
	// --watch-config-map: entries by namespace/name or */name of a ServiceAccount.
	ConfigMap map[string]EKSIdentity `json:"configMap,omitempty"`
	// ContainerCredentials lists namespace/name of the ServiceAccounts with an EKS Pod
	// Identity association.
	ContainerCredentials []string `json:"containerCredentials,omitempty"`
	// Jitter is subtracted from the lifetime of container credentials if it is 86400
	// seconds. The webhook uses a random number from 0 to 7200; here, it is always the
	// same.
	Jitter int64 `json:"jitter,omitempty"`
	// ReinvocationPolicy is Never by default.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
}

// EKSIdentity is an entry of the ConfigMap pod-identity-webhook. Only the lifetime has a
// default: the value of the flag.
type EKSIdentity struct {
	RoleARN         string `json:"RoleARN,omitempty"`
	Audience        string `json:"Audience,omitempty"`
	UseRegionalSTS  bool   `json:"UseRegionalSTS,omitempty"`
	TokenExpiration int64  `json:"TokenExpiration,omitempty"`
}

const (
	eksMinSeconds     = 600
	eksDefaultSeconds = 86400
	eksRegional       = "AWS_STS_REGIONAL_ENDPOINTS"
)

// Registration implements Peer.
func (e *EKS) Registration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return registration("pod-identity-webhook", "pod-identity-webhook.amazonaws.com", admissionregistrationv1.Ignore, cmp.Or(e.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy),
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "eks.amazonaws.com/skip-pod-identity-webhook", Operator: metav1.LabelSelectorOpDoesNotExist},
		}})
}

// Mutate implements Peer. A pod whose ServiceAccount is unknown stays without
// credentials, unless it is in the ConfigMap or has an association.
func (e *EKS) Mutate(pod *corev1.Pod, account *corev1.ServiceAccount) error {
	prefix := e.prefix()
	injection := e.injection(pod, account)
	if injection == nil {
		return nil
	}
	if seconds, err := strconv.ParseInt(pod.Annotations[prefix+"token-expiration"], 10, 64); err == nil {
		injection.expiration = max(seconds, eksMinSeconds)
	}
	if injection.label != "" && injection.expiration == eksDefaultSeconds {
		injection.expiration -= e.Jitter
	}
	skip := skippedByEKS(pod.Annotations[prefix+"skip-containers"])
	file := injection.variables[1].Value
	if windowsByEKS(pod) {
		injection.variables[1].Value = "C:" + strings.ReplaceAll(file, "/", `\`)
	}
	each(pod, skip, injection.inject)
	addFirst(pod, projected(injection.volume, injection.audience, path.Base(file), injection.expiration, nil))
	if injection.label != "" {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[injection.label] = "enabled"
	}
	return nil
}

func (e *EKS) prefix() string { return cmp.Or(e.AnnotationPrefix, "eks.amazonaws.com") + "/" }

// eksInjection contains what the containers of one pod get.
type eksInjection struct {
	volume, mountPath, audience string
	expiration                  int64
	region                      string
	regional                    bool
	// variables are set together. The second is the file of the token.
	variables [2]corev1.EnvVar
	// label marks pods with container credentials.
	label string
}

// injection returns what the pod gets, or nil for nothing. Container credentials, which
// are EKS Pod Identity, come before the annotations, and these before the ConfigMap.
func (e *EKS) injection(pod *corev1.Pod, account *corev1.ServiceAccount) *eksInjection {
	namespace, name := pod.Namespace, pod.Spec.ServiceAccountName
	identity := EKSIdentity{TokenExpiration: eksDefaultSeconds}
	if account != nil {
		namespace, name = account.Namespace, account.Name
		identity = e.annotated(account)
	}
	configured, found := e.ConfigMap[namespace+"/"+name]
	if slices.Contains(e.ContainerCredentials, namespace+"/"+name) {
		if account == nil && found {
			identity = e.withLifetime(configured)
		}
		return e.containerCredentials(&identity)
	}
	if identity.RoleARN == "" {
		if !found {
			configured = e.ConfigMap["*/"+name]
		}
		identity = e.withLifetime(configured)
	}
	if identity.RoleARN == "" {
		return nil
	}
	mountPath := cmp.Or(e.TokenMountPath, "/var/run/secrets/eks.amazonaws.com/serviceaccount")
	return &eksInjection{
		volume: "aws-iam-token", mountPath: mountPath, audience: identity.Audience, expiration: identity.TokenExpiration, region: e.AWSDefaultRegion, regional: identity.UseRegionalSTS,
		variables: [2]corev1.EnvVar{{Name: "AWS_ROLE_ARN", Value: identity.RoleARN}, {Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: path.Join(mountPath, "token")}},
	}
}

// containerCredentials returns the address of an agent on the node, and no role.
func (e *EKS) containerCredentials(identity *EKSIdentity) *eksInjection {
	const name, mountPath = "eks-pod-identity-token", "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
	return &eksInjection{
		volume: name, mountPath: mountPath, audience: "pods.eks.amazonaws.com", expiration: identity.TokenExpiration, region: e.AWSDefaultRegion, regional: identity.UseRegionalSTS,
		variables: [2]corev1.EnvVar{
			{Name: "AWS_CONTAINER_CREDENTIALS_FULL_URI", Value: "http://169.254.170.23/v1/credentials"},
			{Name: "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Value: path.Join(mountPath, name)},
		},
		label: "eks.amazonaws.com/pod-identity",
	}
}

// annotated returns the identity in the annotations. Values that are malformed are
// ignored; a lifetime has no upper limit.
func (e *EKS) annotated(account *corev1.ServiceAccount) EKSIdentity {
	prefix := e.prefix()
	identity := e.withLifetime(EKSIdentity{RoleARN: account.Annotations[prefix+"role-arn"], UseRegionalSTS: e.STSRegionalEndpoint})
	if e.ComposeRoleARN != "" && identity.RoleARN != "" && !strings.Contains(identity.RoleARN, "arn:") {
		identity.RoleARN = e.ComposeRoleARN + identity.RoleARN
	}
	var found bool
	if identity.Audience, found = account.Annotations[prefix+"audience"]; !found {
		identity.Audience = cmp.Or(e.TokenAudience, "sts.amazonaws.com")
	}
	if regional, err := strconv.ParseBool(account.Annotations[prefix+"sts-regional-endpoints"]); err == nil {
		identity.UseRegionalSTS = regional
	}
	if seconds, err := strconv.ParseInt(account.Annotations[prefix+"token-expiration"], 10, 64); err == nil {
		identity.TokenExpiration = max(seconds, eksMinSeconds)
	}
	return identity
}

// withLifetime returns the identity with a lifetime, by default the value of the flag.
func (e *EKS) withLifetime(identity EKSIdentity) EKSIdentity {
	if identity.TokenExpiration == 0 {
		identity.TokenExpiration = max(cmp.Or(e.TokenExpiration, eksDefaultSeconds), eksMinSeconds)
	}
	return identity
}

// skippedByEKS reads one CSV record. It does not trim the names.
func skippedByEKS(list string) []string {
	names, err := csv.NewReader(strings.NewReader(list)).Read()
	if err != nil {
		return nil
	}
	return names
}

// windowsByEKS reports whether the webhook treats the pod as a Windows pod.
func windowsByEKS(pod *corev1.Pod) bool {
	return pod.Spec.NodeSelector["kubernetes.io/os"] == "windows" || pod.Spec.NodeSelector["beta.kubernetes.io/os"] == "windows"
}

// inject adds the missing parts to the container. A container that has all three kinds of
// variables gets nothing, not even the mount.
func (i *eksInjection) inject(c *corev1.Container) {
	hasIdentity := sets(c, i.variables[0].Name, i.variables[1].Name)
	hasRegion := sets(c, "AWS_REGION", "AWS_DEFAULT_REGION")
	hasRegional := sets(c, eksRegional)
	if hasIdentity && hasRegion && hasRegional {
		return
	}
	if !hasRegional && i.regional {
		add(c, eksRegional, "regional")
	}
	if !hasRegion && i.region != "" {
		add(c, "AWS_DEFAULT_REGION", i.region)
		add(c, "AWS_REGION", i.region)
	}
	if !hasIdentity {
		c.Env = append(c.Env, i.variables[:]...)
	}
	if !mounts(c, i.volume) { // anywhere
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: i.volume, MountPath: i.mountPath, ReadOnly: true})
	}
}

// addFirst puts the volume before the others, unless the pod has one of that name.
func addFirst(pod *corev1.Pod, volume corev1.Volume) {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
		pod.Spec.Volumes = slices.Insert(pod.Spec.Volumes, 0, volume)
	}
}
