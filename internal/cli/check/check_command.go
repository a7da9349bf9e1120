// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/probe"
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
	*command.CLI
	command.Output
	pre            bool
	serviceAccount string
	installTo      string

	settings *settings.Settings
	client   kubernetes.Interface
	report   checkReport
	page     *command.Page // for sections, as they come
}

// NewCommand returns the command check.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &checkCommand{CLI: c}
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check that Lanyard works, or that it can be installed.",
		Long:    checkHelp,
		Example: checkExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	k.Output.AddFlag(cmd, "Check")
	c.AddConfig(cmd)
	cmd.Flags().BoolVar(&k.pre, "pre", false, "Check the cluster before the install.")
	cmd.Flags().StringVar(&k.installTo, "install-namespace", "lanyard-system", "With --pre: the namespace that Lanyard is to be installed in.")
	cmd.Flags().StringVar(&k.serviceAccount, "service-account", "", "ServiceAccount of --namespace to try. Without it, one that needs credentials is chosen.")
	_ = cmd.RegisterFlagCompletionFunc("service-account", c.CompleteServiceAccounts()) // the error is for a flag that does not exist
	return cmd
}

func (k *checkCommand) run(ctx context.Context) (err error) {
	if k.pre && k.serviceAccount != "" {
		return command.Usagef("--service-account cannot be used with --pre")
	}
	if k.settings, err = k.CLI.Settings(ctx); err != nil {
		return err
	}
	if k.client, _, err = k.Clients(); err != nil {
		return err
	}
	k.page = command.NewPage(k.Out)
	version, err := k.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	k.add("cluster", Version(version.GitVersion))
	if k.pre {
		k.beforeInstall(ctx)
	} else if err := k.installed(ctx); err != nil {
		return err
	}
	return command.FoundIf(k.report.Count(probe.Failed) > 0, cmp.Or(k.page.Err, k.Write(k.CLI, &k.report)))
}

// add adds a section to the report, and shows it to people at once.
func (k *checkCommand) add(name string, lines ...probe.Line) {
	k.report.Sections = append(k.report.Sections, probe.Section{Name: name, Lines: lines})
	if k.Format != command.OutputTable {
		return
	}
	k.page.Line("%s", k.page.Style(command.Title, name))
	for _, line := range lines {
		k.page.Marked(styles[line.Status], line.Text)
		if line.Fix != "" {
			k.page.Text(4, "", line.Fix)
		}
		if line.Link != "" {
			k.page.Line("    %s", k.page.Style(command.Faint, line.Link))
		}
	}
	k.page.Line("")
}

// styles are the styles of the lines.
var styles = map[probe.Status]string{probe.OK: command.Good, probe.Warning: command.Warn, probe.Failed: command.Bad, probe.Skipped: command.Faint}

// beforeInstall checks a cluster that Lanyard is to be installed in.
func (k *checkCommand) beforeInstall(ctx context.Context) {
	k.add("rights", k.rights(ctx)...)
	if all, err := k.configurations(ctx); err != nil {
		k.add("other webhooks", probe.Unreadable("webhook configurations", err))
	} else {
		k.add("other webhooks", append(Installed(cluster.Find(all)), Peers(all, "")...)...)
	}
	k.issuer(ctx)
}

// installed checks an installation.
func (k *checkCommand) installed(ctx context.Context) error {
	all, err := k.configurations(ctx)
	if err != nil {
		k.add("registration", probe.Unreadable("webhook configurations", err))
		return nil
	}
	found := cluster.Find(all)
	if len(found) != 1 {
		k.add("registration", NotOne(found))
		k.issuer(ctx)
		return nil
	}
	mutating := found[0]
	validating, err := k.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, mutating.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		validating = nil
	} else if err != nil {
		k.add("registration", probe.Unreadable("validating webhook configurations", err))
		return nil
	}
	k.add("replicas", k.replicas(ctx, mutating))
	k.add("certificate", Certificates(mutating, validating, time.Now())...)
	k.add("registration", append(Registration(mutating, validating), Peers(all, mutating.Name)...)...)
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
func (k *checkCommand) replicas(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) probe.Line {
	config := cluster.Entry(mutating, cluster.PodWebhook).ClientConfig
	if config.Service == nil {
		return probe.Skip("the webhook runs outside of the cluster, at %s", *config.URL)
	}
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
func (k *checkCommand) policies(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) {
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
	if err != nil && !apierrors.IsNotFound(err) { // the API is missing before 1.30
		k.add("guard", probe.Unreadable("admission policies", err))
		return
	}
	lines := []probe.Line{Guard(mutating, policies)}
	n, example := 0, ""
	err = k.EachUnguarded(ctx, metav1.NamespaceAll, mutating, func(serviceAccount *metav1.PartialObjectMetadata) error {
		n++
		example = cmp.Or(example, serviceAccount.Namespace+"/"+serviceAccount.Name)
		return nil
	})
	if err != nil {
		lines = append(lines, probe.Unreadable("ServiceAccounts", err))
	} else {
		lines = append(lines, Unguarded(n, example))
	}
	k.add("guard", lines...)
	k.add("fences", Fences(mutating.Name, policies)...)
}

// issuer checks the cluster's issuer, from here as a cloud would.
func (k *checkCommand) issuer(ctx context.Context) {
	defer k.Progress("reading the issuer")()
	cluster, err := cloud.FromCluster(ctx, k.client.CoreV1().RESTClient())
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
		resource := schema.ParseGroupResource(object[0])
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: object[1], Verb: "create", Group: resource.Group, Resource: resource.Resource},
		}}
		response, err := k.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return []probe.Line{probe.Unreadable("your rights", err)}
		}
		if !response.Status.Allowed {
			lines = append(lines, noRight(object[0], object[1]))
		}
	}
	return orPassed(lines, "you may create all %d kinds of objects that an install creates", len(all))
}

// dryRuns asks the API server for a pod that needs only an answer of the webhook,
// and one that needs credentials.
func (k *checkCommand) dryRuns(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) error {
	defer k.Progress("waiting for the webhook")()
	client, err := k.Probe()
	if err != nil {
		return err
	}
	namespace, err := k.Namespace()
	if err != nil {
		return err
	}
	answer := client.Create(ctx, namespace, probe.Pod(k.settings.Keys, cmp.Or(k.serviceAccount, "default")))
	if k.serviceAccount != "" {
		for _, section := range probe.DryRun(k.settings.Keys, namespace+"/"+k.serviceAccount, answer) {
			k.add(section.Name, section.Lines...)
		}
		return nil
	}
	called := probe.Probe(answer.Err)
	k.add("probe", called)
	if called.Status == probe.Failed {
		return nil // the next one would fail in the same way
	}
	namespace, name, err := k.anyServiceAccount(ctx, mutating)
	switch {
	case err != nil:
		k.add("dry run", probe.Unreadable("ServiceAccounts", err))
	case name == "":
		k.add("dry run", probe.Skip("no ServiceAccount needs credentials yet, so none was tried"))
	default:
		answer := client.Create(ctx, namespace, probe.Pod(k.settings.Keys, name))
		k.add("dry run", probe.Injection(k.settings.Keys, namespace+"/"+name, answer))
	}
	return nil
}

// anyServiceAccount returns a ServiceAccount that needs credentials, in a namespace
// that Lanyard is called for. The name is empty if there is no such namespace.
func (k *checkCommand) anyServiceAccount(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) (namespace, name string, err error) {
	called, err := k.CalledFor(ctx, mutating)
	if err != nil {
		return "", "", err
	}
	err = k.EachServiceAccount(ctx, metav1.NamespaceAll, func(object *metav1.PartialObjectMetadata) error {
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
type checkReport struct{ probe.Report }

// Print writes the summary: the sections were written as they came.
func (r *checkReport) Print(p *command.Page) {
	failed, warnings := r.Count(probe.Failed), r.Count(probe.Warning)
	style, summary := command.Good, "no check failed"
	switch {
	case failed > 0:
		style, summary = command.Bad, fmt.Sprintf("failed: %d, warnings: %d", failed, warnings)
	case warnings > 0:
		style, summary = command.Warn, fmt.Sprintf("no check failed, warnings: %d", warnings)
	}
	p.Text(0, style, summary)
}
