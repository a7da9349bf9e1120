// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// recorder is a webhook that keeps the last request.
type recorder struct{ last []byte }

// ServeHTTP allows every request.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var review admissionv1.AdmissionReview
	if err = errors.Join(err, json.Unmarshal(body, &review)); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("not an AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	r.last = body
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	// A client that does not read the response reports an error itself.
	_ = json.NewEncoder(w).Encode(review)
}

// capture returns the requests that the API server sends for pods, byte for
// byte, by ServiceAccount and by number of containers.
func (c *cluster) capture(ctx context.Context, namespace string, accounts []string) (map[string]map[int][]byte, error) {
	serving, err := controlplane.NewServingPEM("127.0.0.1")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		return nil, err
	}
	r := &recorder{}
	server := httptest.NewUnstartedServer(r)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	defer server.Close()
	err = c.register(ctx, server.URL, serving.CA, func(*corev1.Pod) bool { return r.last != nil }, namespace)
	if err != nil {
		return nil, err
	}
	reviews := map[string]map[int][]byte{}
	for _, account := range accounts {
		reviews[account] = map[int][]byte{}
		for _, size := range loadContainers() {
			r.last = nil
			if _, err := c.dryRun(ctx, namespace, newPod(account, size)); err != nil {
				return nil, err
			}
			if r.last == nil {
				return nil, errors.New("the API server sent no request")
			}
			reviews[account][size] = r.last
		}
	}
	return reviews, c.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, namespace, metav1.DeleteOptions{})
}
