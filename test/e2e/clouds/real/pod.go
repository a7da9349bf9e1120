// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newPod returns a pod of a ServiceAccount. It never runs.
func newPod(account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// report is a line of the program with the SDKs, see sdk/README.md.
type report struct{ Cloud, Credential, Expires, Error string }

// reports creates a pod of the ServiceAccount, and runs the program with what its container gets.
func (r *runner) reports(ctx context.Context, account string) (map[string]report, error) {
	pod, err := r.client.CoreV1().Pods(namespace).Create(ctx, newPod(account), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the pod %s: %w", account, err)
	}
	if err := r.writeFiles(ctx, pod); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, r.program, clouds()...)
	// Use nothing of the machine, which may have its own identity.
	command.Env = append([]string{"HOME=/nonexistent", "AWS_EC2_METADATA_DISABLED=true", "NO_GCE_CHECK=true"}, r.environment...)
	for _, v := range pod.Spec.Containers[0].Env {
		if v.ValueFrom != nil {
			return nil, fmt.Errorf("pod %s: variable %s: got a reference, want a value", account, v.Name)
		}
		command.Env = append(command.Env, v.Name+"="+v.Value)
	}
	output, err := command.Output() // the exit code is 1 for an error in a line
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("run the program with the SDKs: %w", err)
	}
	reports := map[string]report{}
	for line := range bytes.Lines(output) {
		var one report
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("read a line of the program with the SDKs: %w", err)
		}
		reports[one.Cloud] = one
	}
	return reports, nil
}

// writeFiles writes the files of the volume, as the kubelet does.
func (r *runner) writeFiles(ctx context.Context, pod *corev1.Pod) error {
	if err := os.RemoveAll(r.mount); err != nil { // of another pod
		return fmt.Errorf("remove the files of another pod: %w", err)
	}
	for _, source := range r.sources(pod) {
		if t := source.ServiceAccountToken; t != nil {
			token, err := r.requestToken(ctx, pod, t)
			if err == nil {
				err = r.writeFile(t.Path, token)
			}
			if err != nil {
				return err
			}
		}
		if source.DownwardAPI == nil {
			continue
		}
		for _, item := range source.DownwardAPI.Items {
			key := strings.TrimSuffix(strings.TrimPrefix(item.FieldRef.FieldPath, "metadata.annotations['"), "']")
			if err := r.writeFile(item.Path, pod.Annotations[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sources returns the sources of the volume at the mount path.
func (r *runner) sources(pod *corev1.Pod) []corev1.VolumeProjection {
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		for i := range pod.Spec.Volumes {
			if volume := &pod.Spec.Volumes[i]; mount.MountPath == r.mount && mount.Name == volume.Name && volume.Projected != nil {
				return volume.Projected.Sources
			}
		}
	}
	return nil
}

// requestToken requests a projected token, bound to the pod.
func (r *runner) requestToken(ctx context.Context, pod *corev1.Pod, t *corev1.ServiceAccountTokenProjection) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:         []string{t.Audience},
		ExpirationSeconds: t.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	response, err := r.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request the token %s of the pod %s: %w", t.Path, pod.Name, err)
	}
	return response.Status.Token, nil
}

func (r *runner) writeFile(path, content string) error {
	file := filepath.Join(r.mount, path)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write a file of the volume: %w", err)
	}
	return nil
}

// clouds returns the clouds, as the program with the SDKs names them.
func clouds() []string { return []string{"aws", "azure", "gcp"} }

// refusals returns the codes with which the clouds refuse another subject. A network error is
// not one of them. Google refuses the impersonation, because any subject of the pool gets a
// federated token.
func refusals() map[string]string {
	return map[string]string{"aws": "AccessDenied", "azure": "AADSTS700213", "gcp": "PERMISSION_DENIED"}
}

// check requires a credential of each cloud for the trusted ServiceAccount, and a refusal by each
// cloud for the other one. It shows the errors of the SDKs, which contain no token.
func check(out io.Writer, account string, reports map[string]report) error {
	var errs []error
	for _, name := range clouds() {
		got, found := reports[name]
		code := refusals()[name]
		var err error
		switch {
		case !found:
			err = fmt.Errorf("%s: the program with the SDKs has no result for ServiceAccount %s", name, account)
		case account == trusted && got.Credential == "":
			err = fmt.Errorf("%s: got no credential for ServiceAccount %s: %s", name, account, got.Error)
		case account == trusted:
			_, err = fmt.Fprintf(out, "%s: credential for ServiceAccount %s until %s\n", name, account, got.Expires)
		case got.Credential != "":
			err = fmt.Errorf("%s: got a credential for ServiceAccount %s, want the refusal %s: the cloud trusts more than ServiceAccount %s", name, account, code, trusted)
		case !strings.Contains(got.Error, code):
			err = fmt.Errorf("%s: got another error for ServiceAccount %s, want the refusal %s: %s", name, account, code, got.Error)
		default:
			_, err = fmt.Fprintf(out, "%s: no credential for ServiceAccount %s: %s\n", name, account, code)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
