// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// WaitReady returns when a GET of the URL, a health endpoint, returns 200. If
// ctx ends first, the error contains the last attempt's error.
func WaitReady(ctx context.Context, url string) error {
	return process.Poll(ctx, url, func(ctx context.Context) error { return CheckReady(ctx, url) })
}

// CheckReady is a single attempt of WaitReady. It returns an error if the
// health endpoint does not return 200.
func CheckReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("got status %d, want %d", response.StatusCode, http.StatusOK)
	}
	return nil
}
