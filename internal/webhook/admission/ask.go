// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
)

// Ask returns the response of a Decider to the creation of an object, without a server.
// kind is "pod" or "serviceaccount". adapt, unless nil, checks or changes the object first.
// The response may refer to raw.
func Ask[T any](ctx context.Context, d Decider[T], kind, namespace string, raw []byte, adapt func(*T) error) (Response, error) {
	var object T
	s := jsonscan.New(raw)
	if _, err := d.Read(s, &object); err != nil {
		return Response{}, err
	}
	if err := s.End(); err != nil {
		return Response{}, fmt.Errorf("%s: %w", kind, err)
	}
	if adapt != nil {
		if err := adapt(&object); err != nil {
			return Response{}, err
		}
	}
	return d.Decide(ctx, &Request[T]{
		Attributes: Attributes{Version: "v1", Resource: kind + "s", Operation: Create, Namespace: namespace}, Object: &object,
	})
}
