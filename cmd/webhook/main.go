// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command lanyard-webhook is the admission webhook.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/cmd/webhook/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "lanyard-webhook:", err)
		os.Exit(1)
	}
}
