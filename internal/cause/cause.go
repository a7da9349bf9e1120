// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cause finds the cause of an error, and its fix, by the text of the error. It knows the errors
// that the API server returns about the webhook, and those of kubelets about the token volume. The
// causes of cloud errors have the same form.
//
// lanyard-webhook uses this package, so it imports no types of the Kubernetes API.
package cause

import (
	_ "embed" // the causes
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Cause is the cause of an error, with the next step.
type Cause struct {
	// Code is the code of the error, or empty if it has none.
	Code string `json:"code"`
	// Message is a pattern that the text of the error contains; … matches any text. Also
	// contains the patterns of other errors with the same cause.
	Message string   `json:"message"`
	Also    []string `json:"also"`
	// Text describes the cause.
	Text string `json:"cause"`
	// Fix is the next step, and Link is a page in docs.
	Fix  string `json:"fix"`
	Link string `json:"link"`
	// Repair names the cloud's template for the repair. Terraform reports whether lanyard trust
	// can also print it as Terraform. Only causes of cloud errors set these two.
	Repair    string `json:"repair"`
	Terraform bool   `json:"terraform"`
	// Step describes the repair in one sentence. A name in braces stands for a value.
	Step string `json:"step"`
}

// Parse reads lists of causes, keyed by origin.
func Parse(text []byte) (map[string][]Cause, error) {
	var all map[string][]Cause
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("causes of errors: %w", err)
	}
	return all, nil
}

// Find returns the first cause of the list with this code whose pattern matches the message, or nil
// if there is none.
func Find(list []Cause, code, message string) *Cause {
	i := slices.IndexFunc(list, func(c Cause) bool { return c.Code == code && c.in(message) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// in reports whether the message matches a pattern of the cause.
func (c *Cause) in(message string) bool {
	return contains(message, c.Message) || slices.ContainsFunc(c.Also, func(also string) bool { return contains(message, also) })
}

// contains reports whether the message contains the parts of the pattern, in this order.
func contains(message, pattern string) bool {
	for part := range strings.SplitSeq(pattern, " … ") {
		_, after, found := strings.Cut(message, part)
		if !found {
			return false
		}
		message = after
	}
	return true
}

// Advice returns the cause as a sentence, followed by the next step.
func (c *Cause) Advice() string { return strings.ToUpper(c.Text[:1]) + c.Text[1:] + " " + c.Fix }

//go:embed causes.yaml
var text []byte

// Webhook returns the cause of an error of the API server's call to the webhook.
func Webhook(message string) *Cause {
	return find("webhook", message, Cause{
		Text: "the API server got no valid response from the webhook.",
		Fix:  "Read the log of the replicas: kubectl logs deployment/lanyard-webhook --namespace lanyard-system",
		Link: "troubleshooting/webhook-down.md#the-probe",
	})
}

// Kubelet returns the cause of an error that a kubelet reported about the token volume of a pod.
func Kubelet(message string) *Cause {
	return find("kubelet", message, Cause{
		Text: "the kubelet cannot mount the token volume.",
		Fix:  "Read the log of the kubelet on the node of the pod.",
		Link: "troubleshooting/no-credentials.md#a-pod-hangs-in-containercreating",
	})
}

// find returns the cause of a message, or unknown if it matches none.
func find(origin, message string, unknown Cause) *Cause {
	all, err := Parse(text)
	if err != nil {
		panic(err) // the text is constant
	}
	if c := Find(all[origin], "", message); c != nil {
		return c
	}
	return &unknown
}
