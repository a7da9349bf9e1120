// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

const peersName = "peers"

// Peer is the stand-in of another webhook.
type Peer struct {
	// Path identifies it.
	Path string
	// Flags are its settings.
	Flags peers.Flags
	// Namespaces selects the namespaces that it is called for.
	Namespaces *metav1.LabelSelector
}

// Peers are the stand-ins of other webhooks in the cluster.
type Peers struct {
	cluster        *Cluster
	configurations []*admissionregistrationv1.MutatingWebhookConfiguration
	// registered are the names that the API server has.
	registered []string
}

// StartPeers starts the stand-ins. The API server does not call them before Register.
func (c *Cluster) StartPeers(ctx context.Context, webhooks ...Peer) (*Peers, error) {
	serving, err := controlplane.NewServingPEM(peersName + "." + peersName + ".svc")
	if err != nil {
		return nil, err
	}
	started := &Peers{cluster: c}
	config := map[string]peers.Flags{}
	for _, w := range webhooks {
		config[w.Path] = w.Flags
		if err := started.add(&w, serving.CA); err != nil {
			return nil, fmt.Errorf("peer %s: %w", w.Path, err)
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	return started, c.startServer(ctx, peersName, serving, "peers-config", map[string]string{"peers.yaml": string(text)})
}

// add adds a webhook to its configuration. Two layouts of one webhook share it.
func (p *Peers) add(w *Peer, ca []byte) error {
	peer, err := w.Flags.Peer()
	if err != nil {
		return err
	}
	configuration := peer.Registration()
	webhook := &configuration.Webhooks[0]
	webhook.NamespaceSelector = w.Namespaces
	webhook.ClientConfig = admissionregistrationv1.WebhookClientConfig{
		CABundle: ca, Service: &admissionregistrationv1.ServiceReference{Namespace: peersName, Name: peersName, Path: new("/" + w.Path)},
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

// Register makes the API server call the stand-ins, with changed configurations if there
// are changes. It takes effect a moment later.
func (p *Peers) Register(ctx context.Context, changes ...func(*admissionregistrationv1.MutatingWebhookConfiguration)) error {
	for _, configuration := range p.configurations {
		changed := configuration.DeepCopy()
		for _, change := range changes {
			change(changed)
		}
		if _, err := p.cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, changed, metav1.CreateOptions{}); err != nil {
			return err
		}
		p.registered = append(p.registered, changed.Name)
	}
	return nil
}

// Unregister deletes the MutatingWebhookConfigurations of the stand-ins. It takes
// effect a moment later.
func (p *Peers) Unregister(ctx context.Context) error {
	var errs error
	for _, name := range p.registered {
		err := p.cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
		errs = errors.Join(errs, client.IgnoreNotFound(err))
	}
	p.registered = nil
	return errs
}

// Stop removes the stand-ins.
func (p *Peers) Stop(ctx context.Context) error {
	_, err := p.cluster.Run(ctx, "kubectl", "delete", "-f", "test/e2e/framework/peers.yaml")
	return errors.Join(err, p.cluster.DeleteNamespace(ctx, peersName))
}
