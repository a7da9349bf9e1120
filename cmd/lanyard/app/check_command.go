// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/check"
	"github.com/lanyard-dev/lanyard/internal/installation"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/report"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

const checkHelp = `check looks at each part of an installation and shows a fix for each
failure: the API server, the replicas, the certificate, the webhook
configurations, the guard, the fences and the issuer. Then it sends the API
server dry runs of two pods: one that needs nothing but an answer of the
webhook, and one of a ServiceAccount that needs credentials. Nothing is
created.

With --pre, it looks at a cluster before the install: its version, your
rights, other webhooks that inject identities, and the issuer.

Parts that you have no right to read are skipped. The exit code is 1 if a check
failed; warnings do not change it.`

const checkExamples = `  # Is Lanyard all right?
  lanyard check

  # Can it be installed here?
  lanyard check --pre

  # Would the pods of this ServiceAccount get credentials?
  lanyard check --namespace shop --service-account cart

  # Which checks failed? For scripts.
  lanyard check -o json | jq '.sections[].lines[] | select(.status == "failed")'`

// checkCommand holds the flags of check and its findings.
type checkCommand struct {
	*CLI
	output
	pre            bool
	serviceAccount string
	installTo      string

	settings *settings.Settings
	client   kubernetes.Interface
	report   checkReport
	page     *page // nil if the report is written at the end
}

func newCheckCommand(c *CLI) *cobra.Command {
	k := &checkCommand{CLI: c}
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check that Lanyard works, or that it can be installed.",
		Long:    checkHelp,
		Example: checkExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	k.output.addFlag(cmd)
	c.addConfig(cmd)
	cmd.Flags().BoolVar(&k.pre, "pre", false, "Check the cluster before the install.")
	cmd.Flags().StringVar(&k.installTo, "install-namespace", "lanyard-system", "With --pre: the namespace that Lanyard is to be installed in.")
	cmd.Flags().StringVar(&k.serviceAccount, "service-account", "", "ServiceAccount of --namespace to try. Without it, one that needs credentials is chosen.")
	_ = cmd.RegisterFlagCompletionFunc("service-account", c.completeServiceAccounts) // the error is for a flag that does not exist
	return cmd
}

func (k *checkCommand) run(ctx context.Context) (err error) {
	if k.pre && k.serviceAccount != "" {
		return usagef("--service-account cannot be used with --pre")
	}
	if k.settings, err = k.CLI.settings(ctx); err != nil {
		return err
	}
	if k.client, _, err = k.clients(); err != nil {
		return err
	}
	if k.format == outputTable {
		k.page = newPage(k.Out)
	}
	version, err := k.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	k.add("cluster", check.Version(version.GitVersion))
	if k.pre {
		k.beforeInstall(ctx)
	} else if err := k.installed(ctx); err != nil {
		return err
	}
	if k.page == nil {
		err = k.write(k.CLI, &k.report)
	} else {
		k.report.summary(k.page)
		err = k.page.err
	}
	if err == nil && k.report.Count(report.Failed) > 0 {
		return errFound
	}
	return err
}

// add adds a section to the report, and shows it.
func (k *checkCommand) add(name string, lines ...report.Line) {
	section := report.Section{Name: name, Lines: lines}
	k.report.Sections = append(k.report.Sections, section)
	if k.page != nil {
		printSection(k.page, &section)
	}
}

// beforeInstall checks a cluster that Lanyard is to be installed in.
func (k *checkCommand) beforeInstall(ctx context.Context) {
	rights, err := k.rights(ctx)
	if err != nil {
		k.add("rights", report.Unreadable("your rights", err))
	} else {
		k.add("rights", check.Rights(rights)...)
	}
	if all, err := k.configurations(ctx); err != nil {
		k.add("other webhooks", report.Unreadable("webhook configurations", err))
	} else {
		k.add("other webhooks", append(check.Installed(installation.Find(all)), check.Peers(all, "")...)...)
	}
	k.issuer(ctx)
}

// installed checks an installation.
func (k *checkCommand) installed(ctx context.Context) error {
	all, err := k.configurations(ctx)
	if err != nil {
		k.add("registration", report.Unreadable("webhook configurations", err))
		return nil
	}
	found := installation.Find(all)
	if len(found) != 1 {
		k.add("registration", check.NotOne(found))
		k.issuer(ctx)
		return nil
	}
	mutating := found[0]
	validating, err := k.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, mutating.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		validating = nil
	} else if err != nil {
		k.add("registration", report.Unreadable("validating webhook configurations", err))
		return nil
	}
	k.add("replicas", k.replicas(ctx, mutating))
	k.add("certificate", check.Certificates(mutating, validating, time.Now())...)
	k.add("registration", append(check.Registration(mutating, validating), check.Peers(all, mutating.Name)...)...)
	k.policies(ctx, mutating)
	k.issuer(ctx)
	return k.dryRuns(ctx, mutating)
}

func (k *checkCommand) configurations(ctx context.Context) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	all, err := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// replicas checks the pods behind the Service that the API server calls.
func (k *checkCommand) replicas(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) report.Line {
	config := installation.Entry(mutating, installation.PodWebhook).ClientConfig
	if config.Service == nil {
		return check.Outside(*config.URL)
	}
	name := config.Service.Namespace + "/" + config.Service.Name
	service, err := k.client.CoreV1().Services(config.Service.Namespace).Get(ctx, config.Service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return check.NoService(name)
	}
	if err != nil {
		return report.Unreadable("Service "+name, err)
	}
	pods, err := k.client.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return report.Unreadable("the pods of Service "+name, err)
	}
	return check.Replicas(name, pods.Items)
}

// policies checks the guard, its labels and the fences.
func (k *checkCommand) policies(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) {
	api := k.client.AdmissionregistrationV1()
	list, err := api.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	policies := &check.Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	if err == nil {
		for i := range list.Items {
			policies.Policies[list.Items[i].Name] = &list.Items[i]
		}
		bindings, errBindings := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		if err = errBindings; err == nil {
			policies.Bindings = bindings.Items
		}
	}
	if err != nil && !apierrors.IsNotFound(err) { // the API is missing before 1.30
		k.add("guard", report.Unreadable("admission policies", err))
		return
	}
	lines := check.Guard(mutating, policies)
	n, example := 0, ""
	err = k.eachUnguarded(ctx, metav1.NamespaceAll, mutating, func(serviceAccount *metav1.PartialObjectMetadata) error {
		n++
		example = cmp.Or(example, serviceAccount.Namespace+"/"+serviceAccount.Name)
		return nil
	})
	if err != nil {
		lines = append(lines, report.Unreadable("ServiceAccounts", err))
	} else {
		lines = append(lines, check.Unguarded(n, example))
	}
	k.add("guard", lines...)
	k.add("fences", check.Fences(mutating.Name, policies)...)
}

// issuer checks the cluster's issuer, from here as a cloud would.
func (k *checkCommand) issuer(ctx context.Context) {
	defer k.progress("reading the issuer")()
	cluster, err := issuer.FromCluster(ctx, k.client.CoreV1().RESTClient())
	if err != nil {
		k.add("issuer", report.Unreadable("the issuer", err))
		return
	}
	var public *issuer.Documents
	if issuer.Public(cluster.Discovery.Issuer) {
		public, err = issuer.FromURL(ctx, &http.Client{Timeout: 10 * time.Second}, cluster.Discovery.Issuer)
	}
	k.add("issuer", check.Issuer(cluster, public, err)...)
}

// rights returns the objects that an install creates, and whether the user may create them.
func (k *checkCommand) rights(ctx context.Context) ([]check.Right, error) {
	rights := []check.Right{
		{Resource: "namespaces"},
		{Resource: "serviceaccounts", Namespace: k.installTo},
		{Resource: "secrets", Namespace: k.installTo},
		{Resource: "services", Namespace: k.installTo},
		{Group: "apps", Resource: "deployments", Namespace: k.installTo},
		{Group: "policy", Resource: "poddisruptionbudgets", Namespace: k.installTo},
		{Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: k.installTo},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Namespace: k.installTo},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	}
	for i := range rights {
		r := &rights[i]
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.Namespace, Verb: "create", Group: r.Group, Resource: r.Resource},
		}}
		answer, err := k.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		r.Allowed = answer.Status.Allowed
	}
	return rights, nil
}

// dryRuns asks the API server for a pod that needs only an answer of the webhook,
// and one that needs credentials.
func (k *checkCommand) dryRuns(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) error {
	defer k.progress("waiting for the webhook")()
	client, err := k.probe()
	if err != nil {
		return err
	}
	namespace, err := k.namespace()
	if err != nil {
		return err
	}
	answer := client.Create(ctx, namespace, probe.Pod(k.settings.Keys, cmp.Or(k.serviceAccount, "default")))
	if k.serviceAccount != "" {
		for _, section := range report.DryRun(k.settings.Keys, namespace+"/"+k.serviceAccount, answer) {
			k.add(section.Name, section.Lines...)
		}
		return nil
	}
	called := report.Probe(answer.Err)
	k.add("probe", called)
	if called.Status == report.Failed {
		return nil // the next one would fail in the same way
	}
	namespace, name, err := k.anyServiceAccount(ctx, mutating)
	switch {
	case err != nil:
		k.add("dry run", report.Unreadable("ServiceAccounts", err))
	case name == "":
		k.add("dry run", check.NoInjection())
	default:
		answer := client.Create(ctx, namespace, probe.Pod(k.settings.Keys, name))
		k.add("dry run", report.Injection(k.settings.Keys, namespace+"/"+name, answer))
	}
	return nil
}

// anyServiceAccount returns a ServiceAccount that needs credentials, in a namespace
// that Lanyard is called for. The name is empty if there is no such namespace.
func (k *checkCommand) anyServiceAccount(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) (namespace, name string, err error) {
	called, err := k.calledFor(ctx, mutating)
	if err != nil {
		return "", "", err
	}
	err = k.eachServiceAccount(ctx, metav1.NamespaceAll, func(object *metav1.PartialObjectMetadata) error {
		if called[object.Namespace] && k.settings.Keys.AskForIdentity(object.Annotations) {
			namespace, name = object.Namespace, object.Name
			return fs.SkipAll
		}
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return namespace, name, err
}

// checkReport is a report that can be printed.
type checkReport struct{ report.Report }

func (r *checkReport) print(p *page) {
	for i := range r.Sections {
		printSection(p, &r.Sections[i])
	}
	r.summary(p)
}

// marks are the signs of the lines, and their styles.
var marks = map[report.Status][2]string{
	report.OK: {"√", good}, report.Warning: {"‼", warn}, report.Failed: {"×", bad}, report.Skipped: {"-", faint},
}

func printSection(p *page, section *report.Section) {
	p.line("%s", p.style(title, section.Name))
	for _, line := range section.Lines {
		mark := marks[line.Status]
		p.marked(mark[1], mark[0], line.Text)
		if line.Fix != "" {
			p.text(4, "", line.Fix)
		}
		if line.Link != "" {
			p.line("    %s", p.style(faint, line.Link))
		}
	}
	p.line("")
}

func (r *checkReport) summary(p *page) {
	failed, warnings := r.Count(report.Failed), r.Count(report.Warning)
	switch {
	case failed > 0:
		p.line("%s", p.style(bad, fmt.Sprintf("failed: %d, warnings: %d", failed, warnings)))
	case warnings > 0:
		p.line("%s", p.style(warn, fmt.Sprintf("no check failed, warnings: %d", warnings)))
	default:
		p.line("%s", p.style(good, "no check failed"))
	}
}
