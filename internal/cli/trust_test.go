// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// Users who configure a cloud may not be able to reach the cluster.
func TestTrustWorksWithoutACluster(t *testing.T) {
	t.Parallel()
	const (
		issuer   = " --issuer https://issuer.example.com/production"
		provider = "projects/123456789012/locations/global/workloadIdentityPools/production/providers/kubernetes"
	)
	for line, test := range map[string]struct {
		code int
		want []string
	}{
		"aws ingester querier --namespace logs --role-arn arn:aws:iam::111122223333:role/logs" + issuer: {command.ExitOK, []string{
			`"issuer.example.com/production:sub": ["system:serviceaccount:logs:ingester","system:serviceaccount:logs:querier"]`,
			"annotate serviceaccount ingester --namespace logs", "annotate serviceaccount querier --namespace logs",
			"serviceaccount logs/querier is not read: no cluster responds", "the audience sts.amazonaws.com may not be the cluster's",
		}},
		"azure sa/ingester sa/querier --resource-group logs" + issuer: {command.ExitOK, []string{
			"--subject system:serviceaccount:default:ingester", "--subject system:serviceaccount:default:querier",
		}},
		"gcp serviceaccount ingester querier --workload-identity-provider " + provider + issuer: {command.ExitOK, []string{
			"/subject/system:serviceaccount:default:ingester\n", "/subject/system:serviceaccount:default:querier\n",
		}},
		"aws ingester" + issuer: {command.ExitFailed, []string{"--role-arn is missing"}},
		"aws ingester --role-arn arn:aws:iam::111122223333:role/logs": {command.ExitFailed, []string{"no kubeconfig"}},
		"aws a a" + issuer:             {command.ExitFailed, []string{"serviceaccount a is named twice"}},
		"aws a pod/b" + issuer:         {command.ExitFailed, []string{"pod/b: this command is for serviceaccount"}},
		"aws serviceaccount/" + issuer: {command.ExitFailed, []string{`"" is not the name of a ServiceAccount`}},
	} {
		var out bytes.Buffer
		args := append([]string{"lanyard", "--kubeconfig", os.DevNull, "trust"}, strings.Fields(line)...)
		code := Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
		for _, want := range test.want {
			if code != test.code || !strings.Contains(out.String(), want) {
				t.Errorf("%s: got the code %d and %s, want %d and %s", line, code, out.String(), test.code, want)
			}
		}
	}
}
