// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GCP stands in for gcp-workload-identity-federation-webhook. The zero value has its
// defaults.
type GCP struct {
	// AnnotationPrefix is cloud.google.com by default.
	AnnotationPrefix string `json:"annotationPrefix,omitempty"`
	// TokenAudience is sts.googleapis.com by default.
	TokenAudience string `json:"tokenAudience,omitempty"`
	// TokenExpiration is 86400 seconds by default.
	TokenExpiration int64 `json:"tokenExpiration,omitempty"`
	// GCPDefaultRegion is empty by default: the variable is then set, and empty.
	GCPDefaultRegion string `json:"gcpDefaultRegion,omitempty"`
	// Newest selects the webhook after the pull requests 152 and 155, which follow version 0.7.0:
	// the mode direct also sets the variables and the directory of gcloud, and is the default.
	// Their source was not available, so this follows their descriptions.
	Newest bool `json:"newest,omitempty"`
	// DefaultInjectionMode is direct by default. Only the newest webhook has it.
	DefaultInjectionMode string `json:"defaultInjectionMode,omitempty"`
	// GcloudImage is the image of the init container.
	GcloudImage string `json:"gcloudImage,omitempty"`
	// SetupCommand is the command of the init container, which runs gcloud by default.
	// The webhook itself has no such flag.
	SetupCommand []string `json:"setupCommand,omitempty"`
	// ReinvocationPolicy is the value webhook.reinvocationPolicy of its chart, Never by
	// default. In a second call, the webhook replaces its init container as a whole.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
}

const (
	gcpVolume       = "gcp-iam-token"
	gcpMountPath    = "/var/run/secrets/sts.googleapis.com/serviceaccount"
	gcloudVolume    = "gcloud-config"
	gcloudMountPath = "/var/run/secrets/gcloud/config"
	gcloudContainer = "gcloud-setup"
	directVolume    = "external-credential-config"
	directMountPath = "/var/run/secrets/workload-identity"
	gcpFile         = "federation.json"
	gcpMinSeconds   = 3600
	gcpMode         = int32(0o440)
)

var (
	gcpProvider = regexp.MustCompile(`^projects/.+/locations/.+/workloadIdentityPools/.+/providers/.+`)
	gcpProject  = regexp.MustCompile(`@(.*)\.iam\.gserviceaccount\.com`)
)

// Registration implements Peer.
func (g *GCP) Registration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return registration("gcp-wif-webhook-mutating-webhook-configuration", "mpod.kb.io", admissionregistrationv1.Ignore, cmp.Or(g.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy),
		&metav1.LabelSelector{})
}

// gcpIdentity is the identity in the annotations of a ServiceAccount.
type gcpIdentity struct {
	provider, email, audience string
	expiration                int64
	user                      *int64
	direct                    bool
}

// Mutate implements Peer. A pod whose ServiceAccount is unknown stays without
// credentials.
func (g *GCP) Mutate(pod *corev1.Pod, account *corev1.ServiceAccount) error {
	if account == nil {
		return nil
	}
	prefix := cmp.Or(g.AnnotationPrefix, "cloud.google.com") + "/"
	identity, err := g.identity(account, prefix)
	if err != nil || identity == nil {
		return err
	}
	if value, found := pod.Annotations[prefix+"token-expiration"]; found {
		if identity.expiration, err = strconv.ParseInt(value, 10, 64); err != nil {
			return fmt.Errorf("%stoken-expiration: %w", prefix, err)
		}
	}
	identity.expiration = max(identity.expiration, gcpMinSeconds)
	skip := []string{gcloudContainer}
	for name := range strings.SplitSeq(pod.Annotations[prefix+"skip-containers"], ",") {
		skip = append(skip, strings.TrimSpace(name))
	}
	annotate(pod, prefix, identity)
	pod.Spec.Volumes = replaceOrAdd(pod.Spec.Volumes, volumeName, projected(gcpVolume, identity.audience, "token", identity.expiration, new(gcpMode)))
	if identity.direct {
		pod.Spec.Volumes = replaceOrAdd(pod.Spec.Volumes, volumeName, credentialVolume(prefix))
	}
	if !identity.direct || g.Newest {
		pod.Spec.Volumes = replaceOrAdd(pod.Spec.Volumes, volumeName, corev1.Volume{Name: gcloudVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if !identity.direct {
		g.addSetup(pod, identity)
	}
	each(pod, skip, func(c *corev1.Container) { g.inject(c, identity) })
	return nil
}

// identity reads the annotations of the ServiceAccount, or nil if there is none. Some malformed
// ones deny the pod even without an identity.
func (g *GCP) identity(account *corev1.ServiceAccount, prefix string) (*gcpIdentity, error) {
	get := func(name string) string { return account.Annotations[prefix+name] }
	identity := gcpIdentity{provider: get("workload-identity-provider"), email: get("service-account-email"), expiration: cmp.Or(g.TokenExpiration, 86400)}
	identity.direct = g.Newest && g.DefaultInjectionMode != "gcloud"
	var found bool
	if identity.audience, found = account.Annotations[prefix+"audience"]; !found {
		identity.audience = cmp.Or(g.TokenAudience, "sts.googleapis.com")
	}
	for _, name := range []string{"token-expiration", "gcloud-run-as-user"} {
		value, found := account.Annotations[prefix+name]
		if !found {
			continue
		}
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", prefix, name, err)
		}
		if name == "token-expiration" {
			identity.expiration = number
		} else {
			identity.user = &number
		}
	}
	if mode, found := account.Annotations[prefix+"injection-mode"]; found { // an empty mode is neither gcloud nor direct
		identity.direct = strings.EqualFold(mode, "direct")
		if !identity.direct && !strings.EqualFold(mode, "gcloud") {
			return nil, fmt.Errorf("%sinjection-mode: got %q, want gcloud or direct", prefix, mode)
		}
	}
	// Absent and empty differ.
	_, hasProvider := account.Annotations[prefix+"workload-identity-provider"]
	_, hasEmail := account.Annotations[prefix+"service-account-email"]
	switch {
	case !hasProvider && !hasEmail:
		return nil, nil
	case !hasProvider || !hasEmail:
		return nil, fmt.Errorf("%sworkload-identity-provider and %sservice-account-email must both be set", prefix, prefix)
	case !gcpProvider.MatchString(identity.provider):
		return nil, fmt.Errorf("%sworkload-identity-provider: got %q", prefix, identity.provider)
	}
	return &identity, nil
}

// annotate describes the injection on the pod.
func annotate(pod *corev1.Pod, prefix string, identity *gcpIdentity) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[prefix+"workload-identity-provider"] = identity.provider
	pod.Annotations[prefix+"service-account-email"] = identity.email
	pod.Annotations[prefix+"audience"] = identity.audience
	pod.Annotations[prefix+"token-expiration"] = strconv.FormatInt(identity.expiration, 10)
	if identity.direct {
		pod.Annotations[prefix+"external-credentials-json"] = identity.credentials()
	}
}

// credentials returns the content of the credential file.
func (i *gcpIdentity) credentials() string {
	text, err := json.Marshal(map[string]any{
		"type": "external_account", "audience": "//iam.googleapis.com/" + i.provider,
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
		"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + i.email + ":generateAccessToken",
		"credential_source":                 map[string]any{"file": gcpMountPath + "/token", "format": map[string]any{"type": "text"}},
	})
	if err != nil {
		panic(err) // strings are always encoded
	}
	return string(text)
}

// project returns the project in the e-mail, or "".
func (i *gcpIdentity) project() string {
	if found := gcpProject.FindStringSubmatch(i.email); found != nil {
		return found[1]
	}
	return ""
}

// credentialVolume returns the volume with the credential file of the direct mode.
func credentialVolume(prefix string) corev1.Volume {
	return corev1.Volume{Name: directVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		DefaultMode: new(gcpMode),
		Items: []corev1.DownwardAPIVolumeFile{{
			Path:     gcpFile,
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + prefix + "external-credentials-json']"},
		}},
	}}}
}

// addSetup puts the init container that writes the credential file before the others.
func (g *GCP) addSetup(pod *corev1.Pod, identity *gcpIdentity) {
	command := g.SetupCommand
	if len(command) == 0 {
		command = []string{"sh", "-c", "gcloud iam workload-identity-pools create-cred-config $GCP_WORKLOAD_IDENTITY_PROVIDER" +
			" --service-account=$GCP_SERVICE_ACCOUNT --output-file=$CLOUDSDK_CONFIG/" + gcpFile + " --credential-source-file=" + gcpMountPath + "/token" +
			"\ngcloud auth login --cred-file=$CLOUDSDK_CONFIG/" + gcpFile}
	}
	setup := corev1.Container{
		Name: gcloudContainer, Image: cmp.Or(g.GcloudImage, "gcloud"), Command: command,
		Env: []corev1.EnvVar{
			{Name: "GCP_WORKLOAD_IDENTITY_PROVIDER", Value: identity.provider},
			{Name: "CLOUDSDK_CONFIG", Value: gcloudMountPath},
			{Name: "GCP_SERVICE_ACCOUNT", Value: identity.email},
			{Name: "CLOUDSDK_CORE_PROJECT", Value: identity.project()},
		},
		VolumeMounts: g.mounts(false),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, RunAsUser: identity.user,
		},
	}
	if at := initContainer(pod, gcloudContainer); at >= 0 {
		pod.Spec.InitContainers[at] = setup
	} else {
		pod.Spec.InitContainers = slices.Insert(pod.Spec.InitContainers, 0, setup)
	}
}

func (g *GCP) mounts(direct bool) []corev1.VolumeMount {
	all := []corev1.VolumeMount{{Name: gcpVolume, MountPath: gcpMountPath, ReadOnly: true}}
	if direct {
		all = append(all, corev1.VolumeMount{Name: directVolume, MountPath: directMountPath, ReadOnly: true})
	}
	if !direct || g.Newest {
		all = append(all, corev1.VolumeMount{Name: gcloudVolume, MountPath: gcloudMountPath})
	}
	return all
}

// inject replaces mounts and variables of the same names, except for the region
// and the project.
func (g *GCP) inject(c *corev1.Container, identity *gcpIdentity) {
	for _, mount := range g.mounts(identity.direct) {
		c.VolumeMounts = replaceOrAdd(c.VolumeMounts, mountName, mount)
	}
	file := gcloudMountPath + "/" + gcpFile
	if identity.direct {
		file = directMountPath + "/" + gcpFile
	}
	c.Env = replaceOrAdd(c.Env, variableName, corev1.EnvVar{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: file})
	if !identity.direct || g.Newest {
		c.Env = replaceOrAdd(c.Env, variableName, corev1.EnvVar{Name: "CLOUDSDK_CONFIG", Value: gcloudMountPath})
	}
	if g.Newest {
		c.Env = replaceOrAdd(c.Env, variableName, corev1.EnvVar{Name: "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Value: file})
	}
	addIfAbsent(c, "CLOUDSDK_COMPUTE_REGION", g.GCPDefaultRegion)
	addIfAbsent(c, "CLOUDSDK_CORE_PROJECT", identity.project())
}
