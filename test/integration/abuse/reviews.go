// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"fmt"
	"maps"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// The paths of the webhooks.
const (
	podPath                    = "/mutate-v1-pod"
	mutateServiceAccountPath   = "/mutate-v1-serviceaccount"
	validateServiceAccountPath = "/validate-v1-serviceaccount"
)

// LongestIdentity returns the annotations of a ServiceAccount that asks for three
// clouds, each value as long as it may be. Dollar signs are doubled in variables.
func LongestIdentity() map[string]string {
	longest := map[string]string{
		"lanyard.dev/aws-role-arn":                   "arn:aws-iso-b:iam::111122223333:role/" + strings.Repeat("$", 510) + "/" + strings.Repeat("r", 64),
		"lanyard.dev/aws-region":                     "eu-" + strings.Repeat("a", 59) + "-1",
		"lanyard.dev/aws-audience":                   strings.Repeat("x", 255),
		"lanyard.dev/azure-client-id":                "00000000-0000-0000-0000-000000000000",
		"lanyard.dev/azure-tenant-id":                strings.Repeat("a.", 126) + "a",
		"lanyard.dev/azure-audience":                 strings.Repeat("x", 600),
		"lanyard.dev/gcp-workload-identity-provider": "https://iam.googleapis.com/projects/" + strings.Repeat("1", 20) + "/locations/global/workloadIdentityPools/" + strings.Repeat("p", 32) + "/providers/" + strings.Repeat("k", 32),
		"lanyard.dev/gcp-service-account":            "reader@my-project." + strings.Repeat("d", 278) + ".iam.gserviceaccount.com",
		"lanyard.dev/gcp-project":                    strings.Repeat("d", 310) + ".c:abcdefg",
		"lanyard.dev/gcp-audience":                   strings.Repeat("x", 256),
		"lanyard.dev/audience":                       strings.Repeat("x", 1024),
		"lanyard.dev/token-expiration-seconds":       "86400",
	}
	maps.Copy(longest, LongestProfiles())
	return longest
}

// LongestProfiles returns the annotations of as many profiles as a ServiceAccount may
// have, which are together as long as they may be.
func LongestProfiles() map[string]string {
	longest := map[string]string{}
	left := annotations.MaxProfilesBytes
	for i := range annotations.MaxProfiles {
		key := fmt.Sprintf("lanyard.dev/aws-role-arn.p%02d", i)
		role := "arn:aws:iam::111122223333:role/"
		if i == annotations.MaxProfiles-1 {
			role += strings.Repeat("p", left-len(key)-len(role)-len("/r")) + "/"
		} else {
			role += strings.Repeat("p", 180) + "/"
		}
		longest[key] = role + "r"
		left -= len(key) + len(longest[key])
	}
	return longest
}

// subject is the object and operation of a review.
type subject struct{ resource, subResource, operation, namespace, name string }

// review returns an AdmissionReview. It omits the old object if that is empty.
func review(s subject, object, oldObject string) []byte {
	var text strings.Builder
	fmt.Fprintf(&text, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"5e0b6c1e-6a4b-4a1c-9d52-0f6a3f2a7c11",`+
		`"resource":{"group":"","version":"v1","resource":%q},"subResource":%q,"operation":%q,"namespace":%q,"name":%q,"object":`,
		s.resource, s.subResource, s.operation, s.namespace, s.name)
	text.WriteString(object)
	if oldObject != "" {
		text.WriteString(`,"oldObject":` + oldObject)
	}
	text.WriteString("}}")
	return []byte(text.String())
}

// podReview returns the review of a pod with n containers.
func (t *Target) podReview(n int) []byte {
	pod := fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"serviceAccountName":%q,"containers":[%s]}}`,
		t.ServiceAccount, strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, n), ","))
	return review(subject{resource: "pods", operation: "CREATE", namespace: t.Namespace, name: "p"}, pod, "")
}

// annotatedPodReview returns the review of a pod with these annotations, as members
// of a JSON object.
func (t *Target) annotatedPodReview(annotations string) []byte {
	pod := fmt.Sprintf(`{"metadata":{"name":"p","annotations":{%s}},"spec":{"serviceAccountName":%q,"containers":[{"name":"a"}]}}`, annotations, t.ServiceAccount)
	return review(subject{resource: "pods", operation: "CREATE", namespace: t.Namespace, name: "p"}, pod, "")
}

// ephemeralReview returns the review of a pod that gets n ephemeral containers and
// had n others.
func (t *Target) ephemeralReview(n int) []byte {
	pod := func(letter string) string {
		var containers []string
		for i := range n {
			containers = append(containers, fmt.Sprintf(`{"name":"%s%d"}`, letter, i))
		}
		return fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"serviceAccountName":%q,"containers":[{"name":"a"}],"ephemeralContainers":[%s]}}`,
			t.ServiceAccount, strings.Join(containers, ","))
	}
	about := subject{resource: "pods", subResource: "ephemeralcontainers", operation: "UPDATE", namespace: t.Namespace, name: "p"}
	return review(about, pod("x"), pod("y"))
}

// serviceAccountReview returns the review of a ServiceAccount with these
// annotations, as members of a JSON object.
func (t *Target) serviceAccountReview(name, annotations string) []byte {
	return review(subject{resource: "serviceaccounts", operation: "CREATE", namespace: t.Namespace, name: name},
		fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{%s}}}`, name, annotations), "")
}

// emptyAnnotations returns n empty annotations with different keys, as members of a JSON
// object.
func emptyAnnotations(prefix string, n int) string {
	var text strings.Builder
	for i := range n {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(`"` + prefix + word(i, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") + `":""`)
	}
	return text.String()
}

// word returns a different word of four letters for each number.
func word(i int, letters string) string {
	text := make([]byte, 4)
	for j := range text {
		text[j] = letters[i%len(letters)]
		i /= len(letters)
	}
	return string(text)
}
