// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// NewHandler returns a handler that responds to admission reviews of new pods as the
// webhook does. It reads each ServiceAccount from the API server.
//
// Like the webhooks, it compares the pod that it received with the pod that its own
// types can represent, so fields that are newer than those types are lost.
func NewHandler(p Peer, client kubernetes.Interface) http.Handler {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		var pod corev1.Pod
		if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		account, err := accountOf(ctx, p, client, request.Namespace, pod.Spec.ServiceAccountName)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if err := p.Mutate(&pod, account); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		current, err := json.Marshal(&pod)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(request.Object.Raw, current)
	})}
}

// accountOf returns the ServiceAccount, or nil if it does not exist. For Azure's
// webhook, the name is default if it is empty.
func accountOf(ctx context.Context, p Peer, client kubernetes.Interface, namespace, name string) (*corev1.ServiceAccount, error) {
	if _, azure := p.(*Azure); azure {
		name = cmp.Or(name, "default")
	}
	if name == "" {
		return nil, nil
	}
	account, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return account, err
}
