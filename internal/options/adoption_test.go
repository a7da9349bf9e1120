// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"strings"
	"testing"
)

func TestAdoptNamesPeers(t *testing.T) {
	t.Parallel()
	const pool = "projects/1/locations/global/workloadIdentityPools/pool/providers/prov"
	for sentence, tt := range map[string]struct {
		adopt []string
		pool  string
		peers int
		want  string // in the error, or empty if there is none
	}{
		"no peer":                        {nil, "", 0, ""},
		"three peers":                    {[]string{"gcp", "eks", "azure"}, "", 3, ""},
		"an unknown peer":                {[]string{"eks", "aws"}, "", 0, `--adopt: got "aws", want one or more of eks, azure, gcp, gke`},
		"GKE without the default":        {[]string{"gke"}, "", 0, "--adopt: gke needs the cluster's default of the annotation gcp-workload-identity-provider"},
		"GKE with the cluster's default": {[]string{"gke"}, pool, 1, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append([]string{"--adopt=" + strings.Join(tt.adopt, ","), "--gcp-default-workload-identity-provider=" + tt.pool}, files...)...)
			completed, err := o.Settings(nil)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want %s", err, tt.want)
				}
				return
			}
			if err != nil || len(completed.Peers) != tt.peers {
				t.Errorf("got %+v and error %v, want %d peers", completed, err, tt.peers)
			}
		})
	}
}
