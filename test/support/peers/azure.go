// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Azure stands in for azure-workload-identity.
type Azure struct {
	// Version is 1.5 or 1.6, the default. Their volumes and paths differ.
	Version string `json:"version,omitempty"`
	// TenantID is $AZURE_TENANT_ID of the webhook.
	TenantID string `json:"tenantID,omitempty"`
	// AuthorityHost is https://login.microsoftonline.com/ by default.
	AuthorityHost string `json:"authorityHost,omitempty"`
	// Audience is api://AzureADTokenExchange by default.
	Audience string `json:"audience,omitempty"`
	// IdentityBindings contains the flags and variables of a custom token endpoint,
	// which the older version does not have.
	IdentityBindings *AzureIdentityBindings `json:"identityBindings,omitempty"`
	// Proxy contains the image and the commands of the containers of the proxy. The webhook
	// itself has no such flag.
	Proxy AzureProxy `json:"proxy,omitzero"`
	// ReinvocationPolicy is IfNeeded by default.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
}

// AzureProxy is the image of both containers of the proxy, and their commands.
type AzureProxy struct {
	Image        string   `json:"image,omitempty"`
	Command      []string `json:"command,omitempty"`
	SetupCommand []string `json:"setupCommand,omitempty"`
}

// AzureIdentityBindings are the settings of identity bindings, which AKS uses.
type AzureIdentityBindings struct {
	// AnnotationSuffix is --custom-token-endpoint-annotation-suffix: pods ask with the
	// annotation azure.workload.identity/use-SUFFIX.
	AnnotationSuffix string `json:"annotationSuffix"`
	// Audience is --custom-token-endpoint-audience.
	Audience string `json:"audience"`
	// TokenProxy, SNIName and CAData are $AZURE_KUBERNETES_TOKEN_PROXY,
	// $AZURE_KUBERNETES_SNI_NAME and $AZURE_KUBERNETES_CA_DATA.
	TokenProxy string `json:"tokenProxy,omitempty"`
	SNIName    string `json:"sniName,omitempty"`
	CAData     string `json:"caData,omitempty"`
	// CAConfigMap is $AZURE_KUBERNETES_CA_CONFIGMAP_NAME, and CATrustBundleSigner
	// $AZURE_KUBERNETES_CA_CTB_SIGNER_NAME.
	CAConfigMap         string `json:"caConfigMap,omitempty"`
	CATrustBundleSigner string `json:"caTrustBundleSigner,omitempty"`
}

// AzureOlder is the Version of the older layout.
const AzureOlder = "1.5"

const (
	azurePrefix      = "azure.workload.identity/"
	azureToken       = "azure-identity-token"
	azureVolumeStart = "azure-workload-identity-reserved-"
	azureCAFile      = "ca-cert/ca.crt"
	azureMinSeconds  = 3600
	azureMaxSeconds  = 86400
)

// Registration implements Peer.
func (a *Azure) Registration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return registration("azure-wi-webhook-mutating-webhook-configuration", "mutation.azure-workload-identity.io", admissionregistrationv1.Fail, cmp.Or(a.ReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy),
		&metav1.LabelSelector{MatchLabels: map[string]string{azurePrefix + "use": "true"}})
}

// Mutate implements Peer.
func (a *Azure) Mutate(pod *corev1.Pod, account *corev1.ServiceAccount) error {
	if account == nil {
		return fmt.Errorf("serviceaccounts %q not found", pod.Spec.ServiceAccountName)
	}
	if _, found := pod.Annotations[azurePrefix+"inject-proxy-sidecar"]; found { // "false" as well
		if err := a.Proxy.add(pod); err != nil {
			return err
		}
	}
	expiration, err := azureExpiration(pod, account)
	if err != nil {
		return err
	}
	tenant, found := account.Annotations[azurePrefix+"tenant-id"]
	if !found {
		tenant = a.TenantID
	}
	volume, mountPath, file := azureToken, "/var/run/secrets/azure/tokens", azureToken
	if a.Version != AzureOlder {
		volume, mountPath, file = azureVolume(pod), "/var/run/secrets/azure/wi", "token/"+azureToken
	}
	var skip []string
	for name := range strings.SplitSeq(pod.Annotations[azurePrefix+"skip-containers"], ";") {
		skip = append(skip, strings.TrimSpace(name))
	}
	variables := []corev1.EnvVar{
		{Name: "AZURE_CLIENT_ID", Value: account.Annotations[azurePrefix+"client-id"]},
		{Name: "AZURE_TENANT_ID", Value: tenant},
		{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: mountPath + "/" + file},
		{Name: "AZURE_AUTHORITY_HOST", Value: cmp.Or(a.AuthorityHost, "https://login.microsoftonline.com/")},
	}
	token := projected(volume, cmp.Or(a.Audience, "api://AzureADTokenExchange"), file, expiration, nil)
	if a.binds(pod) {
		variables = append(variables, a.IdentityBindings.variables(mountPath)...)
		a.IdentityBindings.complete(token.Projected)
	}
	each(pod, skip, func(c *corev1.Container) {
		for _, v := range variables {
			if v.Value != "" {
				addIfAbsent(c, v.Name, v.Value)
			}
		}
		a.mount(c, corev1.VolumeMount{Name: volume, MountPath: mountPath, ReadOnly: true})
	})
	a.addVolume(pod, token)
	return nil
}

// binds reports whether the pod asks for an identity binding.
func (a *Azure) binds(pod *corev1.Pod) bool {
	return a.Version != AzureOlder && a.IdentityBindings != nil && strings.EqualFold(pod.Annotations[azurePrefix+"use-"+a.IdentityBindings.AnnotationSuffix], "true")
}

// variables returns the variables of the proxy that exchanges the token.
func (b *AzureIdentityBindings) variables(mountPath string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "AZURE_KUBERNETES_TOKEN_PROXY", Value: b.TokenProxy},
		{Name: "AZURE_KUBERNETES_SNI_NAME", Value: b.SNIName},
		{Name: "AZURE_KUBERNETES_CA_FILE", Value: mountPath + "/" + azureCAFile},
		{Name: "AZURE_KUBERNETES_CA_DATA", Value: b.CAData},
	}
}

// complete gives the volume the audience of the proxy, and the proxy's certificate.
func (b *AzureIdentityBindings) complete(volume *corev1.ProjectedVolumeSource) {
	volume.Sources[0].ServiceAccountToken.Audience = b.Audience
	if b.CAConfigMap != "" {
		volume.Sources = append(volume.Sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: b.CAConfigMap}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: azureCAFile}}, Optional: new(false),
		}})
	}
	if b.CATrustBundleSigner != "" {
		volume.Sources = append(volume.Sources, corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
			SignerName: &b.CATrustBundleSigner, Path: azureCAFile, Optional: new(false),
		}})
	}
}

// mount adds the mount. The newer version replaces a mount of the same volume, the
// older keeps it.
func (a *Azure) mount(c *corev1.Container, mount corev1.VolumeMount) {
	if a.Version != AzureOlder {
		c.VolumeMounts = replaceOrAdd(c.VolumeMounts, mountName, mount)
	} else if !mounts(c, mount.Name) {
		c.VolumeMounts = append(c.VolumeMounts, mount)
	}
}

// addVolume adds the volume. The newer version replaces a volume of the same name. The
// older adds none if any volume has a token with the same file name.
func (a *Azure) addVolume(pod *corev1.Pod, volume corev1.Volume) {
	if a.Version != AzureOlder {
		pod.Spec.Volumes = replaceOrAdd(pod.Spec.Volumes, volumeName, volume)
		return
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, projectsAzureToken) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
}

func projectsAzureToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil && s.ServiceAccountToken.Path == azureToken
	})
}

// azureVolume returns the name of the newer version's volume, which depends on the
// pod's name.
func azureVolume(pod *corev1.Pod) string {
	name := pod.Name
	if name == "" {
		name = pod.GenerateName + " (prefix)"
	}
	sum := sha256.Sum256([]byte(name))
	return azureVolumeStart + hex.EncodeToString(sum[:])[:30]
}

// azureExpiration returns the lifetime of the token in seconds. An empty annotation
// counts as none, and a malformed one denies the pod.
func azureExpiration(pod *corev1.Pod, account *corev1.ServiceAccount) (int64, error) {
	const key = azurePrefix + "service-account-token-expiration"
	value := cmp.Or(pod.Annotations[key], account.Annotations[key])
	if value == "" {
		return azureMinSeconds, nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	if seconds < azureMinSeconds || seconds > azureMaxSeconds {
		return 0, fmt.Errorf("%s: got %d, want %d to %d", key, seconds, azureMinSeconds, azureMaxSeconds)
	}
	return seconds, nil
}

// add adds the two containers of the proxy, which emulates a metadata server.
func (p *AzureProxy) add(pod *corev1.Pod) error {
	if pod.Spec.HostNetwork {
		return errors.New("the proxy sidecar cannot be in a pod with hostNetwork")
	}
	port := cmp.Or(pod.Annotations[azurePrefix+"proxy-sidecar-port"], "8000")
	if _, err := strconv.ParseInt(port, 10, 32); err != nil {
		return fmt.Errorf("%sproxy-sidecar-port: %w", azurePrefix, err)
	}
	sidecar := corev1.Container{
		Name: "azwi-proxy", Image: cmp.Or(p.Image, "proxy"), Command: p.Command, Args: []string{"--proxy-port=" + port},
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
	}
	setup := corev1.Container{
		Name: "azwi-proxy-init", Image: cmp.Or(p.Image, "proxy-init"), Command: p.SetupCommand, Env: []corev1.EnvVar{{Name: "PROXY_PORT", Value: port}},
		SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
	}
	if initContainer(pod, setup.Name) < 0 {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, setup)
	}
	if initContainer(pod, sidecar.Name) < 0 {
		pod.Spec.InitContainers = slices.Insert(pod.Spec.InitContainers, 0, sidecar)
	}
	return nil
}
