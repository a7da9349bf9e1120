// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const adoptAll = `config:
  adopt: [eks, azure, gcp, gke]
  gcp-default-workload-identity-provider: projects/1/locations/global/workloadIdentityPools/pool/providers/prov
`

// adoptionExpression is the match condition of the webhook in test/integration.
const adoptionExpression = "../integration/testdata/adoption.cel"

var update = flag.Bool("update", false, "write the generated files of the chart and of deploy/, and the expression for test/integration")

// serviceAccountExpression returns the match condition of the mutating webhook.
func serviceAccountExpression(t *testing.T, values string) string {
	t.Helper()
	objects := render(t, defaultInstall, parseValues(t, values)).objects
	for _, o := range find(objects, "MutatingWebhookConfiguration") {
		for _, webhook := range decode[admissionregistrationv1.MutatingWebhookConfiguration](t, o).Webhooks {
			if webhook.Name == "serviceaccounts.lanyard.dev" {
				return webhook.MatchConditions[1].Expression
			}
		}
	}
	t.Fatal("got no webhook for ServiceAccounts")
	return ""
}

func TestTheIntegrationTestsHaveTheExpressionOfTheChart(t *testing.T) {
	compareExpression(t, adoptionExpression, serviceAccountExpression(t, adoptAll)+"\n")
}

// compareExpression compares an expression with a file of test/integration.
func compareExpression(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); write it with -update:\n%s", file, diff)
	}
}

// guardExpression returns the expression for the pods that the guard denies.
func guardExpression(t *testing.T, suffix, values string) string {
	t.Helper()
	objects := render(t, defaultInstall, parseValues(t, values)).objects
	for _, o := range find(objects, "ValidatingAdmissionPolicy") {
		if policy := decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, o); strings.HasSuffix(policy.Name, suffix) {
			return policy.Spec.MatchConditions[0].Expression
		}
	}
	t.Fatal("got no guard")
	return ""
}

// The guard leaves out the same containers and pods as the webhook while a peer is adopted.
func TestTheGuardHasTheRulesOfEachPeer(t *testing.T) {
	const pods = "-guard-pods"
	for _, suffix := range []string{pods, "-guard-injected"} {
		compareExpression(t, "../integration/testdata/adoption"+suffix+".cel", guardExpression(t, suffix, adoptAll)+"\n")
	}
	without := guardExpression(t, pods, "")
	for _, p := range peer.All() {
		got, want := guardExpression(t, pods, strings.Replace(adoptAll, "eks, azure, gcp, gke", p.Name, 1)), without
		if len(p.Replaces) > 0 {
			const end = ".split(',').map(name, name.trim())))) ||"
			want = strings.Replace(want, end, strings.TrimSuffix(end, "))) ||")+" + ['"+strings.Join(p.Replaces, "', '")+"']))) ||", 1)
		}
		if p.Binding != "" {
			clause := "!object.metadata.?annotations.orValue({}).exists(key,\n  key.startsWith('" + p.Binding +
				"') && object.metadata.annotations[key].lowerAscii() == 'true') &&\n"
			want = strings.Replace(want, "[object.metadata.", clause+"[object.metadata.", 1)
		}
		if diff := cmp.Diff(strings.Fields(want), strings.Fields(got)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", p.Name, diff)
		}
	}
}

func TestWithoutAdoptionTheWebhookIgnoresOtherAnnotations(t *testing.T) {
	without := serviceAccountExpression(t, "")
	if strings.Contains(without, "adopted") || strings.Contains(without, "oldObject") {
		t.Errorf("got expression\n%s", without)
	}
	if !strings.HasSuffix(serviceAccountExpression(t, adoptAll), without) {
		t.Errorf("with adoption, the expression does not end with\n%s", without)
	}
}

// The chart and the program know the same annotations.
func TestTheWebhookIsCalledForEachPeer(t *testing.T) {
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	list := func(s []string) string { return "['" + strings.Join(s, "', '") + "']" }
	for _, peer := range peer.All() {
		var own []string
		for _, d := range s.Providers {
			for i := range d.Parameters {
				if p := &d.Parameters[i]; d.Name == peer.Provider && p.Identity {
					own = append(own, annotations.Key(d, p.Name))
				}
			}
		}
		values := strings.Replace(adoptAll, "eks, azure, gcp, gke", peer.Name, 1)
		got := strings.Join(strings.Fields(serviceAccountExpression(t, values)), " ")
		for _, want := range []string{
			list(peer.Identity) + ".all(key, key in now && now[key] != '') && !" + list(own) + ".exists(key, key in now) ||",
			list(peer.Keys()) + ".exists(key, (key in now) != (key in before)",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: got expression\n%s\nwant in it\n%s", peer.Name, got, want)
			}
		}
	}
}

func TestPeersArriveAtTheProgram(t *testing.T) {
	objects := render(t, defaultInstall, parseValues(t, adoptAll)).objects
	completed, err := loadOptions(t, objects, "").Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"eks", "azure", "gcp", "gke"}; !slices.Equal(completed.Peers, want) {
		t.Errorf("got peers %q, want %q", completed.Peers, want)
	}
}
