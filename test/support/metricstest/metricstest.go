// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricstest provides samples for tests that compare documents and queries
// with the metrics of the program.
package metricstest

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
)

// Register registers the metrics of the program, with at least one sample of each.
func Register(registry prometheus.Registerer) error {
	recorder, err := metrics.New(registry)
	if err != nil {
		return err
	}
	recorder.RecordAdmission("pods", "allowed", "injected", time.Millisecond)
	recorder.RecordInjection("aws")
	recorder.RecordFinding("environment_shadowed")
	recorder.RecordLookup("cache", "found")
	recorder.SetCertificateExpiry(time.Unix(1, 0))
	recorder.SetConfigReload(nil)
	recorder.WatchServiceAccounts(func() metrics.ServiceAccounts { return metrics.ServiceAccounts{} })
	recorder.WatchCache("serviceaccounts", func() (used, limit int64) { return 1, 2 })
	return nil
}
