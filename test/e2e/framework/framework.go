// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework is what the suites on a whole cluster share. It knows the
// cluster by $KUBECONFIG alone, and not of what kind it is.
package framework

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// Images that the cluster has to have. hack/e2e.sh brings them there.
const (
	WebhookImage   = "lanyard-webhook:e2e"
	KillImage      = "lanyard-kill:e2e"
	SDKGoImage     = "lanyard-sdk-go:e2e"
	SDKNodeImage   = "lanyard-sdk-node:e2e"
	SDKPythonImage = "lanyard-sdk-python:e2e"
)

// Cluster is the cluster under test, as its administrator sees it.
type Cluster struct {
	kubernetes.Interface
	// Config is for further clients.
	Config *rest.Config
	// Kubeconfig is the file, for commands.
	Kubeconfig string
	// Root is the repository's.
	Root string
}

// Connect gives the cluster that $KUBECONFIG names.
func Connect() (*Cluster, error) {
	c := &Cluster{Kubeconfig: os.Getenv("KUBECONFIG")}
	if c.Kubeconfig == "" {
		return nil, errors.New("$KUBECONFIG is not set; hack/e2e.sh runs the suites on a cluster of their own")
	}
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("$KUBECONFIG: %w", err)
	}
	// What a suite asks for at once is its own business.
	c.Config.QPS = -1
	c.Config.WarningHandler = rest.NoWarnings{}
	if c.Interface, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	// What controller-runtime's client has to say is in its errors.
	ctrllog.SetLogger(logr.Discard())
	c.Root, err = controlplane.RepositoryRoot()
	return c, err
}

// Run runs a command in the repository's root, against the cluster, and gives
// what it printed. Its error holds all of that.
func (c *Cluster) Run(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = c.Root
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output.String())
	}
	return output.String(), nil
}
