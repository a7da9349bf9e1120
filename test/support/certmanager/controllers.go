// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	crca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	crselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	// The kinds of issuers that the two issuer controllers know.
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"golang.org/x/sync/errgroup"
)

// workers is the number of items that each controller processes at once. The
// tests need few.
const workers = 2

// controllerNames lists the controllers to run. cert-manager registers them
// when their packages are imported.
var controllerNames = []string{
	issuers.ControllerName,
	clusterissuers.ControllerName,
	issuing.ControllerName,
	keymanager.ControllerName,
	readiness.ControllerName,
	requestmanager.ControllerName,
	revisionmanager.ControllerName,
	trigger.ControllerName,
	approver.ControllerName,
	crca.CRControllerName,
	crselfsigned.CRControllerName,
}

// runControllers runs cert-manager's controllers with the default settings of
// its own command until ctx ends.
func runControllers(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:    kubeconfig,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	controllers := map[string]controller.Interface{}
	for _, name := range controllerNames {
		build, ok := controller.Known()[name]
		if !ok {
			return fmt.Errorf("cert-manager has no controller %q", name)
		}
		if controllers[name], err = build(factory); err != nil {
			return fmt.Errorf("set up the controller %q: %w", name, err)
		}
	}
	// Building the controllers registered the informers that they need.
	// Everything that the factory builds shares these informers.
	shared, err := factory.Build()
	if err != nil {
		return fmt.Errorf("set up the informers: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	for name, running := range controllers {
		group.Go(func() error {
			if err := running.Run(workers, ctx); err != nil {
				return fmt.Errorf("run the controller %q: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
