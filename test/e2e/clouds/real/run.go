// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// The ServiceAccounts ask for the same identities. The clouds trust only the first one.
const (
	namespace = "lanyard-clouds"
	trusted   = "trusted"
	other     = "other"
)

// injectedTimeout limits the time until the API server calls the webhook.
const injectedTimeout = 5 * time.Minute

// run takes all steps, and writes a line for each result.
func run(ctx context.Context, out io.Writer, s *settings) (err error) {
	dir, err := os.MkdirTemp("", "lanyard-clouds-")
	if err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &runner{settings: s, dir: dir, mount: filepath.Join(dir, "tokens", "serviceaccount")}
	defer func() { err = errors.Join(err, r.stop()) }()
	for _, step := range []func(context.Context) error{r.startAPIServer, r.checkIssuer, r.startWebhook, r.buildProgram} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, account := range []string{trusted, other} {
		reports, err := r.reports(ctx, account)
		if err == nil {
			err = check(out, account, reports)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runner holds what the steps share.
type runner struct {
	*settings
	dir     string
	mount   string // where the webhook says that containers have their tokens
	root    string // of the repository
	program string // with the SDKs

	plane  *controlplane.ControlPlane
	client *kubernetes.Clientset
	hook   *webhook.Process
}

func (r *runner) stop() error {
	var errs []error
	if r.hook != nil {
		errs = append(errs, r.hook.Stop())
	}
	if r.plane != nil {
		errs = append(errs, r.plane.Stop())
	}
	return errors.Join(errs...)
}

// startAPIServer starts an API server that signs with the key, and creates the ServiceAccounts.
func (r *runner) startAPIServer(ctx context.Context) (err error) {
	if r.root, err = controlplane.RepositoryRoot(); err != nil {
		return err
	}
	key := filepath.Join(r.dir, "sa.key")
	if err := os.WriteFile(key, []byte(r.key), 0o600); err != nil {
		return fmt.Errorf("write the signing key: %w", err)
	}
	r.plane, err = controlplane.Start(ctx, controlplane.Options{APIServerFlags: map[string]string{
		"service-account-issuer":           r.issuer,
		"service-account-signing-key-file": key,
		"service-account-key-file":         key, // its public half verifies
	}})
	if err != nil {
		return err
	}
	if r.client, err = kubernetes.NewForConfig(r.plane.Config()); err != nil {
		return fmt.Errorf("create the client: %w", err)
	}
	if err := r.plane.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	for _, name := range []string{trusted, other} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: r.annotations}}
		if _, err := r.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the ServiceAccount %s: %w", name, err)
		}
	}
	return nil
}

// checkIssuer compares the published documents with the API server, because with another key,
// each cloud would return a different error.
func (r *runner) checkIssuer(ctx context.Context) error {
	own, err := cloud.FromCluster(ctx, r.client.CoreV1().RESTClient())
	if err != nil {
		return fmt.Errorf("read the issuer of the API server: %w", err)
	}
	client, err := exchange.NewClient(r.caFile)
	if err != nil {
		return err
	}
	published, err := cloud.FromURL(ctx, client, r.issuer)
	if err != nil {
		return fmt.Errorf("read the published documents of %s: %w", r.issuer, err)
	}
	if wrong, _ := cloud.Compare(own, published, ""); len(wrong) > 0 {
		return fmt.Errorf("published documents: %s; publish the public half of LANYARD_SIGNING_KEY", strings.Join(wrong, "; "))
	}
	return nil
}

// startWebhook starts the webhook as it is shipped, with the rights and the registration of
// deploy/, and waits until the API server calls it.
func (r *runner) startWebhook(ctx context.Context) error {
	deploy := filepath.Join(r.root, "deploy", "base")
	binary, err := webhook.Build(ctx, r.dir, false)
	if err != nil {
		return err
	}
	config, err := webhook.Grant(ctx, r.plane, deploy)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return err
	}
	r.hook, err = webhook.Start(ctx, webhook.Options{Binary: binary, Kubeconfig: kubeconfig, Dir: r.dir, Args: []string{"--token-mount-path", r.mount}})
	if err != nil {
		return err
	}
	if err := r.hook.Register(ctx, r.client, deploy); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, injectedTimeout)
	defer cancel()
	return process.Poll(ctx, "the injection of a pod", func(ctx context.Context) error {
		pod, err := r.client.CoreV1().Pods(namespace).Create(ctx, newPod(trusted), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && pod.Annotations["lanyard.dev/injected"] != "aws,azure,gcp" {
			err = fmt.Errorf("got the annotations %v, want those of three clouds", pod.Annotations)
		}
		return err
	})
}

// buildProgram builds the program with the SDKs, which is in a module of its own.
func (r *runner) buildProgram(ctx context.Context) error {
	r.program = filepath.Join(r.dir, "credentials")
	build := exec.CommandContext(ctx, "go", "build", "-o", r.program, "./credentials")
	build.Dir = filepath.Join(r.root, "test", "e2e", "sdk", "go")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program with the SDKs: %w\n%s", err, output)
	}
	return nil
}
