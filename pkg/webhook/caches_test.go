// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lanyard-dev/lanyard/pkg/webhook"
)

// recordingManager keeps what is added to it.
type recordingManager struct {
	ctrl.Manager
	added []manager.Runnable
}

// Add implements manager.Manager.
func (m *recordingManager) Add(r manager.Runnable) error {
	m.added = append(m.added, r)
	return nil
}

// Replicas that are not the leader serve reviews, too.
func TestAllReplicasHaveCaches(t *testing.T) {
	t.Parallel()
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	recording := &recordingManager{Manager: mgr}
	if err := webhook.AddToManager(recording, webhook.Options{Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	if len(recording.added) != 2 {
		t.Fatalf("got %d parts that the manager starts, want the caches of ServiceAccounts and Namespaces", len(recording.added))
	}
	for _, r := range recording.added {
		if elected, ok := r.(manager.LeaderElectionRunnable); !ok || elected.NeedLeaderElection() {
			t.Errorf("%T waits for leadership", r)
		}
	}
}
