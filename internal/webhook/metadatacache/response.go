// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// NewReadClient returns a client for Options.Reads. Because writers of ServiceAccounts choose
// the size of their metadata, the client reads large metadata one response at a time, and
// returns an error above bounds.LargeMetadata.
//
// It uses HTTP/1.1. With HTTP/2, a response that waits for its turn would be received into
// memory, up to 4 MiB of each.
func NewReadClient(config *rest.Config) (metadata.Interface, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitResponses{next} })
	return metadata.NewForConfig(config)
}

// limitResponses limits the responses to requests with a context from withLargeTurn.
type limitResponses struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limitResponses) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	turn, ok := request.Context().Value(largeTurn{}).(*bounds.Claim)
	if err == nil && ok {
		response.Body = &limitedBody{ReadCloser: response.Body, ctx: request.Context(), turn: turn}
	}
	return response, err
}

type largeTurn struct{}

// withLargeTurn returns a context for a request whose response needs a turn if it is large.
// The caller must release the turn when the decoded response is no longer needed.
func withLargeTurn(ctx context.Context, turn *bounds.Claim) context.Context {
	return context.WithValue(ctx, largeTurn{}, turn)
}

// refusedError is returned for a response that was not read to its end.
type refusedError struct{ err error }

func (e refusedError) Error() string { return e.err.Error() }
func (e refusedError) Unwrap() error { return e.err }

// limitedBody is the body of a response. It waits for its turn after bounds.UsualMetadata.
type limitedBody struct {
	io.ReadCloser
	ctx      context.Context
	turn     *bounds.Claim
	received int
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	usual := b.received <= bounds.UsualMetadata
	n, err := b.ReadCloser.Read(p)
	b.received += n
	switch {
	case b.received > bounds.LargeMetadata:
		return 0, refusedError{fmt.Errorf("its metadata is larger than %d bytes: remove labels, annotations, owners or field managers", bounds.LargeMetadata)}
	case usual && b.received > bounds.UsualMetadata:
		if err := b.turn.Take(b.ctx, 1); err != nil {
			return 0, refusedError{fmt.Errorf("too many objects with large metadata are being read: %w", err)}
		}
	}
	return n, err
}
