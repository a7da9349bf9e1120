// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// verification returns the termination message of the container that verifies the credentials of the
// pod, as a finding.
func (in *input) verification() []finding.Finding {
	var pod corev1.Pod
	text, err := json.Marshal(in.Live)
	if err == nil {
		err = json.Unmarshal(text, &pod)
	}
	at := slices.IndexFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == mutate.VerifyContainer })
	if err != nil || at < 0 {
		return nil
	}
	status := &pod.Status.InitContainerStatuses[at]
	end := status.State.Terminated
	if end == nil { // it runs again, or waits for that
		end = status.LastTerminationState.Terminated
	}
	if end == nil || end.Message == "" {
		return nil
	}
	f := finding.Finding{
		Status: finding.Warning, About: "container " + mutate.VerifyContainer, Reason: "clouds_do_not_accept",
		Text: "container " + mutate.VerifyContainer + ": " + strings.ReplaceAll(end.Message, "\n", " "),
		Fix:  "Repair it as the container says.", Link: finding.Page("verify.md"),
	}
	if end.ExitCode != 0 {
		f.Status = finding.Failed
	}
	return []finding.Finding{f}
}
