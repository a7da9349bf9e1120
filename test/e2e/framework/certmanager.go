// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

var certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}

// StartCertManager installs cert-manager's resources and runs its controllers
// and cainjector until stop is called. They log to output.
func (c *Cluster) StartCertManager(ctx context.Context, output io.Writer) (stop func() error, err error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), "bin/cert-manager", "--kubeconfig", c.Kubeconfig, "--crds", "bin/cert-manager-crds")
	command.Dir = c.Root
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start cert-manager: %w", err)
	}
	stop = func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop cert-manager: %w", err)
		}
		return command.Wait()
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return c.serves("certificates", "certificaterequests", "issuers"), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for cert-manager's resources: %w", err)
	}
	return stop, nil
}

// serves reports whether the API server names these resources of cert-manager. It
// asks as kubectl does; the resources appear there one after the other.
func (c *Cluster) serves(resources ...string) bool {
	missing := sets.New(resources...)
	_, lists, _ := c.Discovery().ServerGroupsAndResources() // the error is about other groups
	for _, list := range lists {
		if list.GroupVersion == certificates.GroupVersion().String() {
			for i := range list.APIResources {
				missing.Delete(list.APIResources[i].Name)
			}
		}
	}
	return missing.Len() == 0
}

// RenewCertificate makes cert-manager renew one of Lanyard's Certificates with
// the condition Issuing, as "cmctl renew" does.
func (c *Cluster) RenewCertificate(ctx context.Context, name string) error {
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	resource := client.Resource(certificates).Namespace(Namespace)
	for {
		certificate, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(certificate.Object, "status", "conditions")
		if err != nil {
			return err
		}
		conditions = append(conditions, map[string]any{
			"type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
			"message": "requested by the test suite", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
		if err := unstructured.SetNestedSlice(certificate.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		if _, err = resource.UpdateStatus(ctx, certificate, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}
