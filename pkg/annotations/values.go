// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Bounds of a token's lifetime in seconds.
const (
	// MinTokenExpirationSeconds is the API server's minimum for a projected token.
	MinTokenExpirationSeconds = 600
	// MaxTokenExpirationSeconds is one day: AWS and Google deny tokens that live longer.
	MaxTokenExpirationSeconds = 86400
	// DefaultTokenExpirationSeconds is also the default of Kubernetes.
	DefaultTokenExpirationSeconds = 3600
)

// ParseAudience accepts 1 to limit visible ASCII characters, except the reserved audiences of
// the API server: with such a token, its receiver could act as the pod in the cluster.
func ParseAudience(value string, limit int, reserved []string) (string, error) {
	if value == "" || len(value) > limit || !texts.IsVisible(value) {
		return "", fmt.Errorf("must be 1 to %d visible ASCII characters without a space", limit)
	}
	if slices.Contains(reserved, value) {
		return "", errors.New("is an audience of the Kubernetes API server; a token with it would give its receiver access to the cluster")
	}
	return value, nil
}

// CommonAPIServerAudiences returns common audiences of API servers.
// Settings.ReservedAudiences must contain at least these and the cluster's issuer, the
// default of --api-audiences.
func CommonAPIServerAudiences() []string {
	return []string{
		"kubernetes", "kubernetes.default.svc", "api",
		"https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local", "https://kubernetes.default",
	}
}

// ParseTokenExpirationSeconds parses a whole number of seconds within the bounds, spelled as
// by strconv.FormatInt. least may raise the minimum.
func ParseTokenExpirationSeconds(value string, least int64) (int64, error) {
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != value {
		seconds = 0 // which is below every minimum
	}
	return seconds, ValidateTokenExpirationSeconds(seconds, least)
}

// ValidateTokenExpirationSeconds checks that seconds is within the bounds.
func ValidateTokenExpirationSeconds(seconds, least int64) error {
	switch {
	case seconds >= max(least, MinTokenExpirationSeconds) && seconds <= MaxTokenExpirationSeconds:
		return nil
	case least <= MinTokenExpirationSeconds:
		return fmt.Errorf("must be a whole number of seconds from %d to %d", MinTokenExpirationSeconds, MaxTokenExpirationSeconds)
	}
	return fmt.Errorf("must be a whole number of seconds from %d to %d: SDKs of a provider of this ServiceAccount cannot use shorter ones", least, MaxTokenExpirationSeconds)
}

// Expiration returns the lifetime of a pod's tokens: from the pod, the ServiceAccount or the
// cluster, in this order. A lifetime shorter than the providers accept is an error on the
// pod; the cluster's is raised.
func (s *Settings) Expiration(pod *Pod, account *ServiceAccount) (int64, field.ErrorList) {
	least := account.minExpirationSeconds()
	switch {
	case pod.TokenExpirationSeconds != 0:
		if err := ValidateTokenExpirationSeconds(pod.TokenExpirationSeconds, least); err != nil {
			return 0, field.ErrorList{field.Invalid(at(TokenExpirationSeconds), pod.TokenExpirationSeconds, err.Error())}
		}
		return pod.TokenExpirationSeconds, nil
	case account.TokenExpirationSeconds != 0:
		return account.TokenExpirationSeconds, nil
	}
	return max(s.TokenExpirationSeconds, least), nil
}

// maxElements limits the elements of a list.
const maxElements = 512

// splitList splits a comma-separated list. Spaces around a comma are ignored; an
// element is never empty.
func splitList(value string) ([]string, error) {
	// Splitting takes 16 bytes for each comma.
	if strings.Count(value, ",") >= maxElements {
		return nil, fmt.Errorf("must have at most %d elements", maxElements)
	}
	elements := strings.Split(value, ",")
	for i, element := range elements {
		elements[i] = strings.TrimSpace(element)
		if elements[i] == "" {
			return nil, errors.New("must be a list separated by commas, without an empty element")
		}
	}
	return elements, nil
}
