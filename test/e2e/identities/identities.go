// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identities holds the ServiceAccounts of the suites that check the SDKs, and
// what the clouds grant them.
package identities

import (
	_ "embed"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// Namespace is the namespace of the ServiceAccounts that the clouds trust.
const Namespace = "identity"

// Trust is the clouds' trust configuration.
//
//go:embed trust.yaml
var Trust string

// Accounts are the ServiceAccounts, as a YAML list.
//
//go:embed accounts.yaml
var Accounts []byte

// The identities in Trust.
const (
	Role         = "arn:aws:iam::123456789012:role/reader"
	Audit        = "arn:aws:iam::123456789012:role/audit"
	Backup       = "arn:aws:iam::123456789012:role/backup"
	Application  = "55556666-cccc-7777-dddd-8888eeee9999@aaaabbbb-0000-cccc-1111-dddd2222eeee"
	Principals   = "principal://iam.googleapis.com/projects/123456789/locations/global/workloadIdentityPools/example-pool/subject/system:serviceaccount:"
	Impersonated = "reporter@example-project.iam.gserviceaccount.com"
)

// ThreeClouds returns what the ServiceAccount three-clouds must get.
func ThreeClouds() expect.Outcomes {
	return expect.Outcomes{
		framework.AWS: expect.Granted(Role), framework.Azure: expect.Granted(Application), framework.GCP: expect.Granted(Impersonated),
	}
}

// Nothing returns what a pod without credentials gets.
func Nothing() expect.Outcomes {
	return expect.Outcomes{framework.AWS: expect.None(), framework.Azure: expect.None(), framework.GCP: expect.None()}
}
