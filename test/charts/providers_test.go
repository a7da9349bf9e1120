// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const providersAndIdentities = `config:
  aws-role-arn-prefix: "arn:aws:iam::111122223333:role/"
  providers:
  - name: example
    audience: example.com
    parameters:
    - {name: role, required: true, pattern: 'role/.+', example: role/loki}
    environment:
    - {name: EXAMPLE_ROLE, value: '{role}'}
  identities:
  - {namespace: "team-*", serviceAccount: "loki.*", annotations: {aws-role-arn: loki, example-role: role/loki}}
`

func TestProvidersAndIdentitiesArriveInTheFile(t *testing.T) {
	objects := render(t, defaultInstall, parseValues(t, providersAndIdentities)).objects
	o := loadOptions(t, objects, "")
	completed, err := o.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range completed.Providers {
		names = append(names, d.Name)
	}
	if diff := cmp.Diff([]string{"aws", "azure", "example", "gcp", "token"}, names); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	want := map[string]string{"lanyard.dev/aws-role-arn": "loki", "lanyard.dev/example-role": "role/loki"}
	if diff := cmp.Diff(want, completed.Map("team-a", "loki.x", nil)); diff != "" {
		t.Errorf("mapped (-want +got):\n%s", diff)
	}
}

// The program reads them again, so no replica needs to be replaced.
func TestChangedProvidersAndIdentitiesDoNotReplaceTheReplicas(t *testing.T) {
	template := func(values string) any {
		return deployment(t, render(t, defaultInstall, parseValues(t, values)).objects).Spec.Template
	}
	changed := strings.NewReplacer("EXAMPLE_ROLE", "OTHER_ROLE", "team-*", "*").Replace(providersAndIdentities)
	if diff := cmp.Diff(template(providersAndIdentities), template(changed)); diff != "" {
		t.Errorf("the pods are replaced (-before +after):\n%s", diff)
	}
}

func TestTheWebhookIsCalledForMappedServiceAccounts(t *testing.T) {
	want := `request.namespace.matches('^team-.*$') && has(object.metadata.name) && object.metadata.name.matches('^loki[.].*$') && ` +
		`!(has(object.metadata.annotations) && object.metadata.annotations.exists(key, key in ['lanyard.dev/aws-role-arn', 'lanyard.dev/example-role'])) || (` +
		`has(object.metadata.annotations) && `
	got := strings.Join(strings.Fields(serviceAccountExpression(t, providersAndIdentities)), " ")
	want = strings.Join(strings.Fields(want), " ")
	if !strings.HasPrefix(strings.ReplaceAll(got, "[ '", "['"), want) {
		t.Errorf("got expression\n%s\nwant it to begin with\n%s", got, want)
	}
	if without := serviceAccountExpression(t, ""); strings.Contains(without, "matches(") {
		t.Errorf("without identities, got expression\n%s", without)
	}
}

func TestProvidersAndAConfigMapOfTheUsersAreDenied(t *testing.T) {
	for _, key := range []string{"providers: [{name: a, audience: a, parameters: []}]", "identities: [{namespace: a, serviceAccount: a, annotations: {a: b}}]"} {
		_, err := tryRender(t, defaultInstall, parseValues(t, "existingConfigMap: mine\nconfig:\n  "+key))
		if err == nil || !strings.Contains(err.Error(), "config.providers and config.identities cannot be set with existingConfigMap") {
			t.Errorf("%s: got error %v", key, err)
		}
	}
}
