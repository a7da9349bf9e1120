// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// The partitions must be those of the SDK, because a token that is sent to the domain of
// another partition has left AWS.
func TestPartitionsAreThoseOfTheSDK(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal", "endpoints", "awsrulesfn", "partitions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Partitions []struct {
			ID      string                     `json:"id"`
			Outputs struct{ DNSSuffix string } `json:"outputs"`
			Regions map[string]any             `json:"regions"`
		} `json:"partitions"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	domains := map[string]string{}
	for _, p := range provider.AWSPartitions() {
		domains[p.Name] = p.Domain
	}
	if len(file.Partitions) != len(domains) {
		t.Errorf("got %d partitions, want the %d of the SDK", len(domains), len(file.Partitions))
	}
	for _, p := range file.Partitions {
		if domains[p.ID] != p.Outputs.DNSSuffix {
			t.Errorf("partition %s: got domain %q, want %q", p.ID, domains[p.ID], p.Outputs.DNSSuffix)
		}
		for region := range p.Regions {
			if got := provider.AWSPartitionOf(region); !strings.HasSuffix(region, "-global") && got != p.ID {
				t.Errorf("region %s: got partition %s, want %s", region, got, p.ID)
			}
		}
	}
}
