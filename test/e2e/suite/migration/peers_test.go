// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

const peersName = "peers"

// standIn is the stand-in of another webhook.
type standIn struct {
	// path identifies it.
	path string
	// flags are its settings.
	flags peers.Flags
	// namespaces selects the namespaces that it is called for.
	namespaces *metav1.LabelSelector
}

// standIns are the stand-ins of other webhooks in the cluster.
type standIns struct {
	configurations []*admissionregistrationv1.MutatingWebhookConfiguration
	// registered contains the names that are registered at the API server.
	registered []string
}

// startStandIns starts the stand-ins. The API server does not call them before register.
func startStandIns(ctx context.Context, webhooks ...standIn) (*standIns, error) {
	serving, err := controlplane.NewServingPEM(peersName + "." + peersName + ".svc")
	if err != nil {
		return nil, err
	}
	started := &standIns{}
	config := map[string]peers.Flags{}
	for _, w := range webhooks {
		config[w.path] = w.flags
		if err := started.add(&w, serving.CA); err != nil {
			return nil, fmt.Errorf("peer %s: %w", w.path, err)
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	return started, cluster.StartServer(ctx, peersName, serving, "peers-config", map[string]string{"peers.yaml": string(text)})
}

// add adds a webhook to its configuration. Two layouts of one webhook share it.
func (p *standIns) add(w *standIn, ca []byte) error {
	peer, err := w.flags.Peer()
	if err != nil {
		return err
	}
	configuration := peer.Registration()
	webhook := &configuration.Webhooks[0]
	webhook.NamespaceSelector = w.namespaces
	webhook.ClientConfig = admissionregistrationv1.WebhookClientConfig{
		CABundle: ca, Service: &admissionregistrationv1.ServiceReference{Namespace: peersName, Name: peersName, Path: new("/" + w.path)},
	}
	same := func(c *admissionregistrationv1.MutatingWebhookConfiguration) bool {
		return c.Name == configuration.Name
	}
	if at := slices.IndexFunc(p.configurations, same); at >= 0 {
		webhook.Name = "other." + webhook.Name
		p.configurations[at].Webhooks = append(p.configurations[at].Webhooks, *webhook)
		return nil
	}
	p.configurations = append(p.configurations, configuration)
	return nil
}

// register makes the API server call the stand-ins, with changed configurations if there
// are changes. It takes effect a moment later.
func (p *standIns) register(ctx context.Context, changes ...func(*admissionregistrationv1.MutatingWebhookConfiguration)) error {
	for _, configuration := range p.configurations {
		changed := configuration.DeepCopy()
		for _, change := range changes {
			change(changed)
		}
		if _, err := cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, changed, metav1.CreateOptions{}); err != nil {
			return err
		}
		p.registered = append(p.registered, changed.Name)
	}
	return nil
}

// unregister deletes the MutatingWebhookConfigurations of the stand-ins. It takes
// effect a moment later.
func (p *standIns) unregister(ctx context.Context) error {
	var errs error
	for _, name := range p.registered {
		err := cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			errs = errors.Join(errs, err)
		}
	}
	p.registered = nil
	return errs
}

// stop removes the stand-ins.
func (p *standIns) stop(ctx context.Context) error {
	_, err := cluster.Run(ctx, "kubectl", "delete", "-f", "test/e2e/framework/peers.yaml")
	return errors.Join(err, cluster.DeleteNamespace(ctx, peersName))
}
