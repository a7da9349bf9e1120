// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
	// caVolume brings the emulators' CA into a pod, from a ConfigMap of the same
	// name.
	caVolume    = "clouds-ca"
	caDirectory = "/etc/clouds-ca"
)

// Clouds are the emulated clouds in the cluster: AWS STS, Microsoft Entra ID,
// Google STS and IAM Credentials, under their own names.
type Clouds struct {
	cluster *Cluster
	address string // of the Service
	caPEM   []byte
}

// StartClouds starts the emulators. trustTemplate is the template of their trust
// file: it may use {{.Issuer}}, the cluster's, and {{.IssuerName}}, the same
// without https://, as AWS writes it.
func (c *Cluster) StartClouds(ctx context.Context, trustTemplate string) (*Clouds, error) {
	trust, err := c.renderTrust(ctx, trustTemplate)
	if err != nil {
		return nil, err
	}
	if err := c.CreateNamespace(ctx, cloudsName, nil); err != nil {
		return nil, err
	}
	clouds := &Clouds{cluster: c}
	certificate, key, err := clouds.makeCertificate()
	if err != nil {
		return nil, err
	}
	_, err = c.CoreV1().ConfigMaps(cloudsName).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "clouds-trust"}, Data: map[string]string{"trust.yaml": trust},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = c.CoreV1().Secrets(cloudsName).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "clouds-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := c.Run(ctx, "kubectl", "apply", "-f", "test/e2e/framework/clouds.yaml"); err != nil {
		return nil, err
	}
	if _, err := c.Run(ctx, "kubectl", "rollout", "status", "deployment/clouds", "--namespace", cloudsName, "--timeout", "2m"); err != nil {
		return nil, errors.Join(err, clouds.lastWords(ctx))
	}
	service, err := c.CoreV1().Services(cloudsName).Get(ctx, cloudsName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	clouds.address = service.Spec.ClusterIP
	return clouds, nil
}

// Stop removes the emulators.
func (c *Clouds) Stop(ctx context.Context) error {
	return c.cluster.DeleteNamespace(ctx, cloudsName)
}

// renderTrust fills in the cluster's issuer.
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
	if err != nil {
		return "", fmt.Errorf("trust: %w", err)
	}
	var out strings.Builder
	err = trust.Execute(&out, map[string]string{
		"Issuer": url, "IssuerName": strings.TrimPrefix(url, "https://"),
	})
	if err != nil {
		return "", fmt.Errorf("trust: %w", err)
	}
	return out.String(), nil
}

// makeCertificate makes a CA, and a certificate of it for the clouds' names.
func (c *Clouds) makeCertificate() (certificate, key []byte, err error) {
	directory, err := os.MkdirTemp("", "lanyard-clouds-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	certificateFile, keyFile, caPEM, err := controlplane.NewServingCertificate(directory, emulator.Hosts()...)
	if err != nil {
		return nil, nil, fmt.Errorf("the clouds' certificate: %w", err)
	}
	c.caPEM = caPEM
	if certificate, err = os.ReadFile(certificateFile); err != nil {
		return nil, nil, err
	}
	key, err = os.ReadFile(keyFile)
	return certificate, key, err
}

// trustIn has the namespace's pods find the emulators' CA.
func (c *Clouds) trustIn(ctx context.Context, namespace string) error {
	_, err := c.cluster.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: caVolume}, Data: map[string]string{"ca.crt": string(c.caPEM)},
	}, metav1.CreateOptions{})
	return err
}

// Redirect leads the pod to the emulators instead of to the clouds: by their
// own names, and by a CA that its SDKs trust. It says nothing of identities,
// and closes the ways to get one from anywhere but the pod.
func (c *Clouds) Redirect(spec *corev1.PodSpec) {
	spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{IP: c.address, Hostnames: emulator.Hosts()})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: caVolume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: caVolume},
			// Written out, so that what was asked for can be compared with what came.
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

// redirectMount is what a container of a redirected pod mounts.
func redirectMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: caVolume, MountPath: caDirectory, ReadOnly: true}
}

// redirectEnv names the CA to each language's TLS, and says that there is no
// metadata server and no home directory.
func redirectEnv() []corev1.EnvVar {
	file := caDirectory + "/ca.crt"
	return []corev1.EnvVar{
		{Name: "SSL_CERT_FILE", Value: file},
		{Name: "NODE_EXTRA_CA_CERTS", Value: file},
		{Name: "REQUESTS_CA_BUNDLE", Value: file},
		{Name: "AWS_CA_BUNDLE", Value: file},
		{Name: "AWS_EC2_METADATA_DISABLED", Value: "true"},
		{Name: "NO_GCE_CHECK", Value: "true"},
		{Name: "METADATA_SERVER_DETECTION", Value: "none"},
		{Name: "HOME", Value: "/nonexistent"},
	}
}

// Journal gives what the emulators decided so far.
func (c *Clouds) Journal(ctx context.Context) ([]journal.Entry, error) {
	pods, err := c.cluster.CoreV1().Pods(cloudsName).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=clouds"})
	if err != nil {
		return nil, err
	}
	if got := len(pods.Items); got != 1 {
		return nil, fmt.Errorf("journal: got %d pods of the emulators, want 1", got)
	}
	return readLines[journal.Entry](ctx, c.cluster, &pods.Items[0], cloudsName)
}

// lastWords is what the emulators logged, as an error.
func (c *Clouds) lastWords(ctx context.Context) error {
	text, err := c.cluster.Run(ctx, "kubectl", "logs", "--namespace", cloudsName, "deployment/clouds", "--tail", "20")
	if err != nil {
		return err
	}
	return fmt.Errorf("the emulators' log: %s", text)
}

// readLines gives the JSON lines that a container printed. Other lines, which
// SDKs write as warnings, are left out.
func readLines[T any](ctx context.Context, c *Cluster, pod *corev1.Pod, container string) ([]T, error) {
	text, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	var lines []T
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, len(text)+1)
	for scanner.Scan() {
		if !bytes.HasPrefix(scanner.Bytes(), []byte("{")) {
			continue
		}
		var line T
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		lines = append(lines, line)
	}
	return lines, scanner.Err()
}
