// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
)

func TestTheNextStepOfAFailedExchange(t *testing.T) {
	t.Parallel()
	lookup := &url.Error{Op: "Post", URL: "https://sts.amazonaws.com/", Err: &net.DNSError{Err: "no such host", Name: "sts.amazonaws.com"}}
	for sentence, test := range map[string]struct {
		err  error
		want string
	}{
		"this machine cannot reach the cloud": {fmt.Errorf("exchange: %w", lookup), "Check the network, the proxy and the DNS of this machine."},
		"a response cannot be read":           {errors.New("status 500"), "Try again. If the error persists, look at the program that returned it."},
	} {
		if got := unknown("shop/cart: AWS", test.err).Fix; got != test.want {
			t.Errorf("%s: got %q, want %q", sentence, got, test.want)
		}
	}
}
