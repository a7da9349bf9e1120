// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/internal/annotations"
)

// DryRun judges the result of a dry run of a pod of the ServiceAccount, which has
// the label of the probe: whether the API server can call the webhook, and if so,
// whether the pod would get credentials.
func DryRun(keys *annotations.Keys, serviceAccount string, answer Answer) []Section {
	called := Probe(answer.Err)
	sections := []Section{{Name: "probe", Lines: []Line{called}}}
	if called.Status == OK {
		sections = append(sections, Section{Name: "dry run", Lines: []Line{Injection(keys, serviceAccount, answer)}})
	}
	return sections
}

// Probe judges the error of a dry run of a pod with the label of the probe. A pod
// that Lanyard denies shows that the webhook was called.
func Probe(err error) Line {
	if err == nil || Denied(err) {
		return Passed("the API server can call the webhook")
	}
	var status apierrors.APIStatus
	switch {
	case strings.Contains(err.Error(), Webhook):
		return Fail("Correct the cause in the error.", "operations.md#when-it-is-down", "the API server cannot call the webhook: %v", err)
	case errors.As(err, &status):
		return Line{Status: Failed, Text: "the dry run of a pod was denied, but not by Lanyard: " + err.Error(), Fix: "Choose another namespace with --namespace."}
	}
	return Line{Status: Failed, Text: "the API server did not respond to the dry run of a pod: " + err.Error(), Fix: "Check the connection to the API server."}
}

// Injection judges the result of the dry run of a pod of a ServiceAccount that
// needs credentials.
func Injection(keys *annotations.Keys, serviceAccount string, answer Answer) Line {
	injected, err := "", answer.Err
	if err == nil {
		injected, err = Injected(answer.Pod, keys)
	}
	if err != nil {
		return Fail("Run: lanyard explain serviceaccount", "reference/reasons.md", "pods of ServiceAccount %s get no credentials: %v", serviceAccount, err)
	}
	return Passed("pods of ServiceAccount %s get credentials: %s", serviceAccount, injected)
}
