// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// beforeInstall checks a cluster that Lanyard is to be installed in.
func (k *checkCommand) beforeInstall(ctx context.Context) {
	k.add("rights", k.rights(ctx)...)
	if all, err := k.configurations(ctx); err != nil {
		k.add("other webhooks", probe.Unreadable("webhook configurations", err))
	} else {
		peers, _ := Peers(all, "lanyard", nil) // the name that the manifests and the chart have
		k.add("other webhooks", append(Installed(cluster.Find(all)), peers...)...)
	}
	k.issuer(ctx)
}

// installed checks an installation. Each part is checked that can be read.
func (k *checkCommand) installed(ctx context.Context) error {
	all, err := k.configurations(ctx)
	found := cluster.Find(all)
	if err == nil && len(found) == 0 {
		k.add("registration", NotOne(found))
		k.issuer(ctx)
		if k.serviceAccount != "" {
			k.add("dry run", probe.Skip("Install Lanyard first.", "pods of ServiceAccount %s/%s were not tried: Lanyard is not installed", k.namespace, k.serviceAccount))
		}
		return nil
	}
	var mutating *admissionregistrationv1.MutatingWebhookConfiguration
	if len(found) == 1 {
		mutating = found[0]
	}
	s := k.survey(ctx, mutating)
	if mutating != nil {
		k.parts(ctx, all, mutating, s)
	} else {
		line := NotOne(found)
		if err != nil {
			line = probe.Unreadable("webhook configurations", err)
		}
		k.add("registration", line)
		for _, part := range []string{"replicas", "certificate", "guard", "fences"} {
			k.add(part, probe.Skip("", "the %s cannot be checked without one webhook configuration that can be read", part))
		}
		k.add("ServiceAccounts", s.lines()...)
	}
	k.issuer(ctx)
	if err := k.pods(ctx, mutating, s); err != nil {
		return err
	}
	return k.dryRuns(ctx, mutating, s)
}

// parts checks the objects of an installation.
func (k *checkCommand) parts(ctx context.Context, all []admissionregistrationv1.MutatingWebhookConfiguration, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey) {
	validating, err := k.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, mutating.Name, metav1.GetOptions{})
	if err != nil {
		validating = nil
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	k.add("replicas", k.replicas(ctx, mutating))
	k.add("certificate", Certificates(mutating, validating, time.Now())...)
	peers, switching := Peers(all, mutating.Name, k.settings.Peers)
	lines := append(Registration(mutating, validating, err), peers...)
	if err := k.Webhook.Unread; err != nil {
		lines = append(lines, Unread(err))
	}
	k.add("registration", lines...)
	k.policies(ctx, mutating, s, switching)
}

func (k *checkCommand) configurations(ctx context.Context) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	all, err := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// replicas checks the pods behind the Service that the API server calls.
func (k *checkCommand) replicas(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) probe.Line {
	config := cluster.Entry(mutating, cluster.PodWebhook).ClientConfig
	if config.Service == nil {
		return probe.DoesNotApply("the webhook runs outside of the cluster, at %s", *config.URL)
	}
	k.redactor.name("namespace", config.Service.Namespace)
	name := config.Service.Namespace + "/" + config.Service.Name
	service, err := k.client.CoreV1().Services(config.Service.Namespace).Get(ctx, config.Service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return probe.Fail("Install Lanyard again, or remove its webhook configurations.", "install.md#uninstall", "Service %s does not exist", name)
	}
	if err != nil {
		return probe.Unreadable("Service "+name, err)
	}
	pods, err := k.client.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return probe.Unreadable("the pods of Service "+name, err)
	}
	return Replicas(name, pods.Items)
}

// policies checks the guard, its labels and the fences.
func (k *checkCommand) policies(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration, s *survey, switching bool) {
	judge := func(line probe.Line) []probe.Line {
		if switching {
			line = DuringSwitch(line)
		}
		return append([]probe.Line{line}, s.lines()...)
	}
	api := k.client.AdmissionregistrationV1()
	list, err := api.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	policies := &Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	if err == nil {
		for i := range list.Items {
			policies.Policies[list.Items[i].Name] = &list.Items[i]
		}
		bindings, errBindings := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		if err = errBindings; err == nil {
			policies.Bindings = bindings.Items
		}
	}
	if apierrors.IsNotFound(err) { // the API is missing before 1.30
		k.add("guard", judge(WithoutPolicies(mutating))...)
		k.add("fences", probe.DoesNotApply("this Kubernetes has no fences: they need 1.30"))
		return
	}
	if err != nil {
		k.add("guard", judge(probe.Unreadable("the guard", err))...)
		k.add("fences", probe.Unreadable("the fences", err))
		return
	}
	k.add("guard", judge(Guard(mutating, policies))...)
	k.add("fences", Fences(mutating.Name, policies)...)
}

// issuer checks the cluster's issuer, from here as a cloud would.
func (k *checkCommand) issuer(ctx context.Context) {
	defer k.Progress("reading the issuer")()
	cluster, err := cloud.FromCluster(ctx, k.client.CoreV1().RESTClient())
	if apierrors.IsForbidden(err) { // without the message of the API server: the response is no object
		k.add("issuer", probe.NoRight("get "+cloud.DiscoveryPath, "the issuer cannot be read"))
		return
	}
	if err != nil {
		k.add("issuer", probe.Unreadable("the issuer", err))
		return
	}
	var public *cloud.Documents
	if cloud.Public(cluster.Discovery.Issuer) {
		public, err = cloud.FromURL(ctx, &http.Client{Timeout: 10 * time.Second}, cluster.Discovery.Issuer)
	}
	k.add("issuer", Issuer(cluster, public, err)...)
}

// rights checks whether the user may create the objects of an install.
func (k *checkCommand) rights(ctx context.Context) []probe.Line {
	var lines []probe.Line
	all := needed(k.installTo)
	for _, object := range all {
		allowed, err := command.May(ctx, k.client, "create", object[0], object[1])
		if err != nil {
			return []probe.Line{probe.Unreadable("your rights", err)}
		}
		if !allowed {
			lines = append(lines, noRight(object[0], object[1]))
		}
	}
	return orPassed(lines, "you may create all %d kinds of objects that an install creates", len(all))
}
