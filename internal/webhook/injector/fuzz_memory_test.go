// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/test/support/alloc"
)

// The webhook may allocate this much for a review: the body, the lists of the pod, and a
// patch of bounded size with its response.
const (
	allocatedPerByte = 4
	allocatedAlways  = 12 << 20
)

// maxReviewBytes limits the reviews that the fuzzer makes.
const maxReviewBytes = 1 << 20

// reviewOf returns a review that repeats part between start and end. Each # in part is
// replaced by a number, so that parts can have different names.
func reviewOf(start, part, end []byte, times uint32) []byte {
	body := slices.Clone(start)
	for i := range times {
		if len(body)+len(part)+len(end) > maxReviewBytes {
			break
		}
		body = append(body, bytes.ReplaceAll(part, []byte("#"), strconv.AppendUint(nil, uint64(i), 36))...)
	}
	return append(body, end...)
}

// FuzzMemory checks that the memory for a review is linear in its length. It repeats a part
// of the review, because the fuzzer does not find long ones.
func FuzzMemory(f *testing.F) {
	seed := func(pod string, times uint32) {
		for _, request := range []*request{create([]byte(pod)), debug([]byte(pod), []byte(plainPod))} {
			start, rest, found := strings.Cut(string(request.body()), "<")
			part, end, closed := strings.Cut(rest, ">")
			if !found || !closed {
				f.Fatalf("got %s, want a part in <>", pod)
			}
			f.Add([]byte(start), []byte(part), []byte(end), times)
		}
	}
	const manyTimes = 1 << 22 // as often as fits
	const spec = `,"spec":{"serviceAccountName":"app","containers":[{"name":"a"`
	seed(`{"metadata":{"name":"<a>"}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"annotations":{<"a":"b",>"a":"b"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"annotations":{"lanyard.dev/skip-containers":"<a,>a"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"annotations":{<"lanyard.dev/#":"",>"a":"b"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"annotations":{"lanyard.dev/containers":"<a,>a"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"annotations":{"lanyard.dev/inject":"<a>"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"annotations":{"lanyard.dev/injected":"<a>"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{"labels":{<"a":"b",>"a":"b"}}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{}`+spec+`}<,{"name":"a"}>]}}`, 511)
	seed(`{"metadata":{}`+spec+`}<,{"name":"a"}>]}}`, manyTimes)
	seed(`{"metadata":{}`+spec+`}<,{}>]}}`, manyTimes)
	seed(`{"metadata":{}`+spec+`,"env":[{}<,{"name":"A"}>]}]}}`, 32000)
	seed(`{"metadata":{}`+spec+`,"env":[{}<,{}>]}]}}`, manyTimes)
	seed(`{"metadata":{}`+spec+`,"volumeMounts":[{}<,{"mountPath":"/a"}>]}]}}`, 32000)
	seed(`{"metadata":{}`+spec+`}],"volumes":[{}<,{"name":"a"}>]}}`, 32000)
	seed(`{"metadata":{}`+spec+`}],"initContainers":[{}<,{"name":"a"}>]}}`, 500)
	seed(`{"metadata":{}`+spec+`}],"ephemeralContainers":[{}<,{"name":"a"}>]}}`, 500)
	seed(`{"metadata":{}`+spec+`}],"x":<[>]}}`, manyTimes)
	seed(`{"metadata":{"name":"<\u0000>"}`+spec+`}]}}`, manyTimes)
	seed(`{"metadata":{}`+spec+`,"volumeMounts":[{"name":"a","mountPath":"/var/run/secrets/lanyard.dev/serviceaccount/<a>/"}]}]}}`, manyTimes)
	seed(`{"metadata":{}`+spec+`,"env":[{"name":"A"}<,{"name":"AWS_ROLE_ARN","value":"#"}>]}]}}`, 32000)
	seed(`{"metadata":{}`+spec+`}],"volumes":[{"name":"bound-sa-token","projected":{"sources":[{}<,{"serviceAccountToken":{"path":"#"}}>]}}]}}`, 32000)
	seed(`{"metadata":{}`+spec+`}],"nodeSelector":{<"#":"",>"a":"b"}}}`, manyTimes)
	for _, name := range []string{"name", "mountPath"} { // of every container, so that each has a finding
		long := strings.Repeat("a", 8000)
		seed(`{"metadata":{}`+spec+`}<,{"name":"#`+long+`","env":[{"name":"AWS_WEB_IDENTITY_TOKEN_FILE","value":"x"}],"volumeMounts":[{"`+name+`":"/var/run/secrets/lanyard.dev/serviceaccount/#`+long+`"}]}>]}}`, 400)
	}
	seed(`{"metadata":{},"spec":{"serviceAccountName":"<a>"}}`, manyTimes)
	seed(`{"metadata":{},"spec":{"serviceAccountName":{"<a>":1}}}`, manyTimes)
	for _, text := range []string{"a", "\u0080", `\u0080`, "\xff"} { // one long key, and a long name with a mistake
		seed(`{"metadata":{"annotations":{"lanyard.dev/<`+text+`>":""}}`+spec+`}]}}`, manyTimes)
		seed(`{"metadata":{"name":"<`+text+`>","annotations":{"lanyard.dev/x":""}}`+spec+`}]}}`, manyTimes)
		seed(`{"metadata":{"name":"<`+text+`>","annotations":{"lanyard.dev/x":""}},"spec":{"containers":[{"name":"a"}]}}`, manyTimes)
	}
	for _, member := range []string{"uid", "namespace", "name", "operation", "subResource"} {
		f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":`+plainPod+`,"`+member+`":"`), []byte("a"), []byte(`"}}`), uint32(manyTimes))
	}
	f.Add([]byte(`{"apiVersion":"`), []byte("a"), []byte(`","kind":"AdmissionReview","request":{"uid":"1"}}`), uint32(manyTimes))
	f.Add([]byte(`{"`), []byte("a"), []byte(`":`), uint32(manyTimes))
	f.Fuzz(func(t *testing.T, start, part, end []byte, times uint32) {
		body := reviewOf(start, part, end, times)
		if len(body) > maxReviewBytes {
			return
		}
		var response *admissionv1.AdmissionResponse
		limit := allocatedPerByte*len(body) + allocatedAlways
		got := alloc.Least(limit, func() {
			// A new handler has no memory of earlier requests.
			pods, _ := newPods(t, longestThreeClouds())
			response = post(t, admission.NewHandler(pods, admission.NewBudget(), uncounted{}, logr.Discard()), body)
		})
		if got > limit {
			t.Errorf("got %d bytes allocated for a review of %d, want at most %d: %s", got, len(body), limit, describe(response))
		}
	})
}

func describe(response *admissionv1.AdmissionResponse) string {
	if response == nil {
		return "rejected"
	}
	return fmt.Sprintf("allowed %t, reason %s, a patch of %d bytes", response.Allowed, response.AuditAnnotations["reason"], len(response.Patch))
}
