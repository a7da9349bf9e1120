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
	// ContainerCredentials lists namespace/name of the ServiceAccounts with an EKS Pod
	// Identity association.
	ContainerCredentials []string `json:"containerCredentials,omitempty"`
}

const (
	eksVolume     = "aws-iam-token"
	eksMinSeconds = 600
	eksRoleARN    = "AWS_ROLE_ARN"
	eksTokenFile  = "AWS_WEB_IDENTITY_TOKEN_FILE"
	eksRegional   = "AWS_STS_REGIONAL_ENDPOINTS"
)

// Registration implements Peer.
func (e *EKS) Registration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return registration("pod-identity-webhook", "pod-identity-webhook.amazonaws.com", admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy,
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "eks.amazonaws.com/skip-pod-identity-webhook", Operator: metav1.LabelSelectorOpDoesNotExist},
		}})
}

// Mutate implements Peer. A pod whose ServiceAccount is unknown stays without
// credentials.
func (e *EKS) Mutate(pod *corev1.Pod, account *corev1.ServiceAccount) error {
	if account == nil {
		return nil
	}
	prefix := cmp.Or(e.AnnotationPrefix, "eks.amazonaws.com") + "/"
	expiration := e.expiration(account.Annotations[prefix+"token-expiration"], pod.Annotations[prefix+"token-expiration"])
	skip := skippedByEKS(pod.Annotations[prefix+"skip-containers"])
	if slices.Contains(e.ContainerCredentials, account.Namespace+"/"+account.Name) {
		injectContainerCredentials(pod, expiration, skip)
		return nil
	}
	role := account.Annotations[prefix+"role-arn"]
	if role == "" {
		return nil
	}
	if e.ComposeRoleARN != "" && !strings.Contains(role, "arn:") {
		role = e.ComposeRoleARN + role
	}
	audience, found := account.Annotations[prefix+"audience"]
	if !found {
		audience = cmp.Or(e.TokenAudience, "sts.amazonaws.com")
	}
	regional, err := strconv.ParseBool(account.Annotations[prefix+"sts-regional-endpoints"])
	if err != nil {
		regional = e.STSRegionalEndpoint
	}
	mountPath := cmp.Or(e.TokenMountPath, "/var/run/secrets/eks.amazonaws.com/serviceaccount")
	file := mountPath + "/token"
	if windowsByEKS(pod) {
		file = "C:" + strings.ReplaceAll(file, "/", `\`)
	}
	each(pod, skip, func(c *corev1.Container) { e.inject(c, role, mountPath, file, regional) })
	addFirst(pod, projected(eksVolume, audience, "token", expiration, nil))
	return nil
}

// expiration returns the lifetime of the token in seconds. Values that are not
// numbers are ignored; there is no upper limit.
func (e *EKS) expiration(ofAccount, ofPod string) int64 {
	expiration := cmp.Or(e.TokenExpiration, 86400)
	for _, value := range []string{ofAccount, ofPod} {
		if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
			expiration = seconds
		}
	}
	return max(expiration, eksMinSeconds)
}

// skippedByEKS reads one CSV record. It does not trim the names.
func skippedByEKS(list string) []string {
	names, err := csv.NewReader(strings.NewReader(list)).Read()
	if err != nil {
		return nil
	}
	return names
}

// windowsByEKS reports whether the webhook takes the pod for one of Windows.
func windowsByEKS(pod *corev1.Pod) bool {
	return pod.Spec.NodeSelector["kubernetes.io/os"] == "windows" || pod.Spec.NodeSelector["beta.kubernetes.io/os"] == "windows"
}

// inject adds the missing parts to the container. A container that has all three kinds of
// variables gets nothing, not even the mount.
func (e *EKS) inject(c *corev1.Container, role, mountPath, file string, regional bool) {
	hasIdentity := sets(c, eksRoleARN, eksTokenFile)
	hasRegion := sets(c, "AWS_REGION", "AWS_DEFAULT_REGION")
	hasRegional := sets(c, eksRegional)
	if hasIdentity && hasRegion && hasRegional {
		return
	}
	if !hasRegional && regional {
		add(c, eksRegional, "regional")
	}
	if !hasRegion && e.AWSDefaultRegion != "" {
		add(c, "AWS_DEFAULT_REGION", e.AWSDefaultRegion)
		add(c, "AWS_REGION", e.AWSDefaultRegion)
	}
	if !hasIdentity {
		add(c, eksRoleARN, role)
		add(c, eksTokenFile, file)
	}
	mountUnlessNamed(c, eksVolume, mountPath)
}

// mountUnlessNamed mounts a volume, unless the container has a mount of that name
// anywhere.
func mountUnlessNamed(c *corev1.Container, volume, mountPath string) {
	if !mounts(c, volume) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: mountPath, ReadOnly: true})
	}
}

// addFirst puts the volume before the others, unless the pod has one of that name.
func addFirst(pod *corev1.Pod, volume corev1.Volume) {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
		pod.Spec.Volumes = append([]corev1.Volume{volume}, pod.Spec.Volumes...)
	}
}

// injectContainerCredentials is EKS Pod Identity: no role, but the address of an agent
// on the node.
func injectContainerCredentials(pod *corev1.Pod, expiration int64, skip []string) {
	const name, mountPath = "eks-pod-identity-token", "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
	const uri, file = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
	each(pod, skip, func(c *corev1.Container) {
		if !sets(c, uri, file) {
			add(c, uri, "http://169.254.170.23/v1/credentials")
			add(c, file, path.Join(mountPath, name))
		}
		mountUnlessNamed(c, name, mountPath)
	})
	addFirst(pod, projected(name, "pods.eks.amazonaws.com", name, expiration, nil))
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["eks.amazonaws.com/pod-identity"] = "enabled"
}
