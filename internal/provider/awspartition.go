// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// AWSPartition is a partition of AWS, as in the file partitions.json of the AWS SDKs, with
// which a test in test/e2e/sdk/go compares AWSPartitions.
type AWSPartition struct {
	// Name is the partition in an ARN, such as aws-cn.
	Name string
	// Domain is what the names of its endpoints end with, such as amazonaws.com.cn.
	Domain string
	// RegionStart is what the names of its regions start with, such as cn-. It is empty
	// for the partition aws, which contains all other regions.
	RegionStart string
}

// AWSPartitions returns the partitions, aws first.
func AWSPartitions() []AWSPartition {
	return []AWSPartition{
		{"aws", "amazonaws.com", ""},
		{"aws-cn", "amazonaws.com.cn", "cn-"},
		{"aws-eusc", "amazonaws.eu", "eusc-"},
		{"aws-iso", "c2s.ic.gov", "us-iso-"},
		{"aws-iso-b", "sc2s.sgov.gov", "us-isob-"},
		{"aws-iso-e", "cloud.adc-e.uk", "eu-isoe-"},
		{"aws-iso-f", "csp.hci.ic.gov", "us-isof-"},
		{"aws-us-gov", "amazonaws.com", "us-gov-"},
	}
}

// AWSPartitionOf returns the name of the partition that a region belongs to.
func AWSPartitionOf(region string) string {
	all := AWSPartitions()
	i := slices.IndexFunc(all, func(p AWSPartition) bool { return p.RegionStart != "" && strings.HasPrefix(region, p.RegionStart) })
	return all[max(i, 0)].Name
}

// awsDoubt compares the partition of the role with the region. Each partition accepts only
// tokens for its own roles, and only the partition aws has a global endpoint. awsDoubt
// ignores unknown partitions.
func awsDoubt(v annotations.Values) (parameter, why string) {
	parts := strings.SplitN(v["role-arn"], ":", 3)
	if len(parts) < 3 {
		return "", "" // a token without a role
	}
	partition, region := parts[1], v["region"]
	known := slices.ContainsFunc(AWSPartitions(), func(p AWSPartition) bool { return p.Name == partition })
	switch {
	case region == "" && partition != "aws":
		return "region", fmt.Sprintf("the role belongs to the partition %s, which has no endpoint without a region, so SDKs cannot exchange the token: set a region of the partition", partition)
	case region != "" && known && AWSPartitionOf(region) != partition:
		return "region", fmt.Sprintf("the region %s belongs to the partition %s and the role to %s, so SDKs cannot exchange the token: set a region of the role's partition", region, AWSPartitionOf(region), partition)
	}
	return "", ""
}
