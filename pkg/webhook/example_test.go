// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/pkg/webhook"
)

// An operator adds Lanyard to its manager. examples/embed is a whole program.
func Example() {
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{WebhookServer: webhook.NewServer(ctrlwebhook.Options{Port: 9443})})
	if err != nil {
		panic(err)
	}
	err = webhook.AddToManager(mgr, webhook.Options{
		Config:            []byte("adopt: [eks]\naws-default-region: eu-central-1\n"),
		ReservedAudiences: []string{"https://issuer.example.com"},
	})
	fmt.Println(err)
	for _, path := range []string{webhook.MutatePodPath, webhook.MutateServiceAccountPath, webhook.ValidateServiceAccountPath} {
		fmt.Println(path)
	}
	// Output:
	// <nil>
	// /mutate-v1-pod
	// /mutate-v1-serviceaccount
	// /validate-v1-serviceaccount
}
