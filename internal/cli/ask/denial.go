// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ask

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/reason"
)

// Denier is the part of the cluster that denies a pod.
type Denier string

const (
	// ByLanyard means that the webhook denied the pod, so that it was called.
	ByLanyard Denier = "lanyard"
	// ByGuard means that the guard denied the pod: it lacks its credentials.
	ByGuard Denier = "guard"
	// ByFailedCall means that the API server could not call a webhook, of Lanyard or of
	// another program, whose failurePolicy is Fail.
	ByFailedCall Denier = "failed-call"
	// ByOther means that another webhook, a policy, a quota or the validation of the API
	// server denied the pod.
	ByOther Denier = "other"
)

// Denial is why a pod would not be created.
type Denial struct {
	By Denier
	// Reason is the reason of ByLanyard.
	Reason reason.Reason
	// Message is the message of Lanyard behind its reason, or of the API server.
	Message string
	// Err is the error of the API server; nil if the rules were evaluated here.
	Err error
}

// Error implements error.
func (d *Denial) Error() string { return d.Message }

// Unwrap returns the error of the API server.
func (d *Denial) Unwrap() error { return d.Err }

// lanyardDenial matches a denial by Lanyard: a reason and a message.
var lanyardDenial = regexp.MustCompile(` denied the request: lanyard: ([a-z_]+): (?s:(.*))$`)

// guardSentence is in the messages of the policies in charts/lanyard/templates/guard.yaml,
// before a key of Lanyard.
const guardSentence = "needs credentials ("

// noDenials are the status codes of errors that are not about the pod: the request did
// not reach the admission, or the API server did not finish it.
var noDenials = []int32{
	http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// denial returns the denial of a pod, or nil for another error. authorized reports whether
// the user is known to have the right to create pods: the API server returns 403 for a
// missing right and for a denial of the pod.
func denial(keys *annotations.Keys, err error, authorized bool) *Denial {
	var response apierrors.APIStatus
	if !errors.As(err, &response) {
		return nil
	}
	status := response.Status()
	if match := lanyardDenial.FindStringSubmatch(status.Message); match != nil && slices.Contains(reason.All(), reason.Reason(match[1])) {
		return &Denial{By: ByLanyard, Reason: reason.Reason(match[1]), Message: match[2], Err: err}
	}
	d := &Denial{By: ByOther, Message: status.Message, Err: err}
	switch {
	case strings.Contains(status.Message, guardSentence+"label "+keys.IdentityLabel), strings.Contains(status.Message, guardSentence+keys.Inject):
		d.By = ByGuard
	case failedCall(&status):
		d.By = ByFailedCall
	case slices.Contains(noDenials, status.Code), status.Reason == metav1.StatusReasonForbidden && !authorized:
		return nil
	}
	return d
}

// failedCall reports whether the API server could not call a webhook: such an error has
// the error of the call as its cause.
func failedCall(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonInternalError && status.Details != nil &&
		slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
			return strings.HasPrefix(cause.Message, "failed calling webhook ")
		})
}
