// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

const (
	cloudsName = "clouds"
	// caVolume is the name of the volume and of the ConfigMap with the
	// emulators' CA.
	caVolume    = "clouds-ca"
	caDirectory = "/etc/clouds-ca"
)

// Clouds are the cloud emulators in the cluster: AWS STS, Microsoft Entra ID,
// Google STS and IAM Credentials, Alibaba Cloud STS, IBM Cloud IAM, Vault, and the APIs of
// Anthropic, OpenAI and Snowflake. Pods reach them under the clouds' real host names.
type Clouds struct {
	cluster *Cluster
	address string // of the Service
	caPEM   []byte
}

// StartClouds starts the emulators. trustTemplate is a template of their trust
// file with {{.Issuer}}, the cluster's issuer, and {{.IssuerName}}, the issuer
// without https://, as AWS writes it.
func (c *Cluster) StartClouds(ctx context.Context, trustTemplate string) (*Clouds, error) {
	trust, err := c.renderTrust(ctx, trustTemplate)
	if err != nil {
		return nil, err
	}
	serving, err := controlplane.NewServingPEM(emulator.Hosts()...)
	if err != nil {
		return nil, err
	}
	clouds := &Clouds{cluster: c, caPEM: serving.CA}
	if err := c.StartServer(ctx, cloudsName, serving, "clouds-trust", map[string]string{"trust.yaml": trust}); err != nil {
		return nil, errors.Join(err, clouds.lastWords(ctx))
	}
	service, err := c.CoreV1().Services(cloudsName).Get(ctx, cloudsName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	clouds.address = service.Spec.ClusterIP
	return clouds, clouds.WaitReachable(ctx)
}

// WaitReachable waits until a pod can connect to the emulators: kube-proxy learns of a ready pod
// later than the Deployment.
func (c *Clouds) WaitReachable(ctx context.Context) error {
	const connect = `
import socket, sys, time
while True:
    try:
        sys.exit(socket.create_connection((sys.argv[1], 443), 1).close())
    except OSError:
        time.sleep(0.1)
`
	client := SDK(Python)
	client.Command = []string{"/usr/bin/python3", "-c", connect, c.address}
	pods := c.cluster.CoreV1().Pods(cloudsName)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "client-"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{client}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.cluster.WaitContainer(ctx, pod, SDKContainer, Terminated)
	return errors.Join(err, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// StartServer runs an HTTPS server from the manifest with its name, in a namespace with
// its name, with a ConfigMap.
func (c *Cluster) StartServer(ctx context.Context, name string, serving *controlplane.ServingPEM, configMap string, data map[string]string) error {
	if err := c.CreateNamespace(ctx, name, nil); err != nil {
		return err
	}
	_, err := c.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Secrets(name).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: serving.Cert, corev1.TLSPrivateKeyKey: serving.Key},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := c.Run(ctx, "kubectl", "apply", "-f", "test/e2e/framework/"+name+".yaml"); err != nil {
		return err
	}
	_, err = c.Run(ctx, "kubectl", "rollout", "status", "deployment/"+name, "--namespace", name, "--timeout", Patience.String())
	return err
}

// Stop removes the emulators.
func (c *Clouds) Stop(ctx context.Context) error {
	return c.cluster.DeleteNamespace(ctx, cloudsName)
}

// CA returns the certificate, in PEM, of the CA of the emulators.
func (c *Clouds) CA() []byte { return c.caPEM }

// Forward makes the emulators reachable at a local address until stop is called.
func (c *Clouds) Forward(ctx context.Context) (address string, stop func(), err error) {
	pod, err := c.pod(ctx)
	if err != nil {
		return "", nil, err
	}
	return c.cluster.Forward(ctx, pod, Port(pod, "https"))
}

// renderTrust inserts the cluster's issuer into the trust file.
func (c *Cluster) renderTrust(ctx context.Context, text string) (string, error) {
	keys, err := issuer.New(c.Config)
	if err != nil {
		return "", err
	}
	url, err := keys.URL(ctx)
	if err != nil {
		return "", err
	}
	trust, err := template.New("trust").Option("missingkey=error").Parse(text)
	var out strings.Builder
	if err == nil {
		err = trust.Execute(&out, map[string]string{"Issuer": url, "IssuerName": strings.TrimPrefix(url, "https://")})
	}
	if err != nil {
		return "", fmt.Errorf("render the trust template: %w", err)
	}
	return out.String(), nil
}

// TrustIn adds the emulators' CA to a namespace, for its pods.
func (c *Clouds) TrustIn(ctx context.Context, namespace string) error {
	_, err := c.cluster.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: caVolume}, Data: map[string]string{"ca.crt": string(c.caPEM)},
	}, metav1.CreateOptions{})
	return err
}

// Redirect directs a pod to the emulators instead of the clouds: it maps the
// clouds' host names to the emulators and adds a CA that the SDKs trust. It
// sets nothing about identities, and disables all credential sources outside of
// the pod.
func (c *Clouds) Redirect(spec *corev1.PodSpec) {
	spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{IP: c.address, Hostnames: emulator.Hosts()})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: caVolume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: caVolume},
			// Set explicitly, so that the created pod can be compared with the
			// requested one.
			DefaultMode: new(int32(0o644)),
		},
	}})
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = append(containers[i].Env, redirectEnv()...)
			containers[i].VolumeMounts = append(containers[i].VolumeMounts, redirectMount())
		}
	}
}

// redirectMount returns the mount of the CA.
func redirectMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: caVolume, MountPath: caDirectory, ReadOnly: true}
}

// redirectEnv returns the variables for the containers of a pod.
func redirectEnv() []corev1.EnvVar {
	var variables []corev1.EnvVar
	for _, variable := range emulator.Environment(caDirectory + "/ca.crt") {
		name, value, _ := strings.Cut(variable, "=")
		variables = append(variables, corev1.EnvVar{Name: name, Value: value})
	}
	return variables
}

// Journal returns all decisions of the emulators so far.
func (c *Clouds) Journal(ctx context.Context) ([]journal.Entry, error) {
	pod, err := c.pod(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	// Not the container's log, which is written some time after the response.
	text, err := c.cluster.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, strconv.Itoa(Port(pod, "probes")), "/journal", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	entries, err := decodeLines[journal.Entry](text)
	if err != nil {
		return nil, fmt.Errorf("decode the journal: %w", err)
	}
	return entries, nil
}

// pod returns the pod of the emulators.
func (c *Clouds) pod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := c.cluster.CoreV1().Pods(cloudsName).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=clouds"})
	if err != nil {
		return nil, err
	}
	if got := len(pods.Items); got != 1 {
		return nil, fmt.Errorf("got %d emulator pods, want 1", got)
	}
	return &pods.Items[0], nil
}

// lastWords returns an error with the end of the emulators' log.
func (c *Clouds) lastWords(ctx context.Context) error {
	text, err := c.cluster.Run(ctx, "kubectl", "logs", "--namespace", cloudsName, "deployment/clouds", "--tail", "20")
	if err != nil {
		return err
	}
	return fmt.Errorf("end of the emulators' log: %s", text)
}

// decodeLines returns the JSON lines of a text. It skips other lines, such as warnings of
// SDKs.
func decodeLines[T any](text []byte) ([]T, error) {
	var decoded []T
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, err
		}
		decoded = append(decoded, one)
	}
	return decoded, nil
}
