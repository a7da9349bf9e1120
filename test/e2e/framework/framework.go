// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework is shared by the end-to-end suites. It only uses
// $KUBECONFIG and does not depend on the kind of cluster.
package framework

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// Patience limits each wait: for images, rollouts, the kubelet's update of a renewed Secret in a
// pod, SDKs that retry a refused request. It is no requirement: on a busy machine, everything
// takes several times as long.
const Patience = 10 * time.Minute

// Images that the cluster must have. hack/e2e.sh loads them.
const (
	WebhookImage   = "lanyard-webhook:e2e"
	LanyardImage   = "lanyard:e2e" // the command line
	AbuseImage     = "lanyard-abuse:e2e"
	ReaderImage    = "lanyard-reader:e2e"
	SDKGoImage     = "lanyard-sdk-go:e2e"
	SDKNodeImage   = "lanyard-sdk-node:e2e"
	SDKPythonImage = "lanyard-sdk-python:e2e"
)

// Cluster is a client of the cluster under test, with administrator rights.
type Cluster struct {
	kubernetes.Interface
	// Config is the configuration for other clients.
	Config *rest.Config
	// Kubeconfig is the path of the kubeconfig file, for commands.
	Kubeconfig string
	// Root is the root directory of the repository.
	Root string
}

// Connect returns the cluster of $KUBECONFIG.
func Connect() (*Cluster, error) {
	c := &Cluster{Kubeconfig: os.Getenv("KUBECONFIG")}
	if c.Kubeconfig == "" {
		return nil, errors.New("$KUBECONFIG is not set; run the suites with hack/e2e.sh")
	}
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("$KUBECONFIG: %w", err)
	}
	// Do not limit the suites' requests.
	c.Config.QPS = -1
	c.Config.WarningHandler = rest.NoWarnings{}
	if c.Interface, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	// controller-runtime's client reports everything in its errors.
	ctrllog.SetLogger(logr.Discard())
	c.Root, err = controlplane.RepositoryRoot()
	return c, err
}

// Run runs a command against the cluster in the root of the repository and
// returns its output. Errors contain the complete output.
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
