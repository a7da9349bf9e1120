// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identities defines the ServiceAccounts of the suites that check the SDKs, and the
// permissions that the clouds grant them.
package identities

import (
	_ "embed"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
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

// ThreeClouds returns the identities of the ServiceAccount three-clouds.
func ThreeClouds() expect.Outcomes {
	return expect.Outcomes{
		journal.AWS: expect.Granted(Role), journal.Azure: expect.Granted(Application), journal.GCP: expect.Granted(Impersonated),
	}
}

// Nothing returns the result for a pod without credentials.
func Nothing() expect.Outcomes {
	return expect.Outcomes{journal.AWS: expect.None(), journal.Azure: expect.None(), journal.GCP: expect.None()}
}
