// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/finding"
)

func TestTheMessageOfTheContainerThatVerifies(t *testing.T) {
	t.Parallel()
	const message = "AWS denies the token of shop/cart: AccessDenied: x\nCause: y\nRepair: z"
	ended := func(code int32, message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Message: message}
	}
	for sentence, tt := range map[string]struct {
		status corev1.ContainerStatus
		want   finding.Status // of the finding; empty for none
	}{
		"it waits to run again": {corev1.ContainerStatus{Name: "lanyard-verify", LastTerminationState: corev1.ContainerState{Terminated: ended(1, message)}}, finding.Failed},
		"it has failed":         {corev1.ContainerStatus{Name: "lanyard-verify", State: corev1.ContainerState{Terminated: ended(1, message)}}, finding.Failed},
		"it only warns":         {corev1.ContainerStatus{Name: "lanyard-verify", State: corev1.ContainerState{Terminated: ended(0, message)}}, finding.Warning},
		"accepted after a failure": {corev1.ContainerStatus{Name: "lanyard-verify",
			State: corev1.ContainerState{Terminated: ended(0, "")}, LastTerminationState: corev1.ContainerState{Terminated: ended(1, message)}}, ""},
		"it runs for the first time": {corev1.ContainerStatus{Name: "lanyard-verify", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, ""},
		"another container":          {corev1.ContainerStatus{Name: "init", State: corev1.ContainerState{Terminated: ended(1, message)}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			pod := injectedPod(t, role)
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first"}, tt.status}
			in.Live = pod
			all := explain(in).Findings
			i := slices.IndexFunc(all, func(f finding.Finding) bool { return f.About == "container lanyard-verify" })
			if tt.want == "" {
				if i >= 0 {
					t.Errorf("got %+v, want no finding", all[i])
				}
				return
			}
			if i < 0 || all[i].Status != tt.want || !strings.Contains(all[i].Text, "AccessDenied: x Cause: y Repair: z") || all[i].Fix == "" {
				t.Errorf("got %+v", all)
			}
		})
	}
}
