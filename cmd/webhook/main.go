// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command lanyard-webhook is the admission webhook.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/cmd/webhook/app"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

func main() {
	if err := app.NewCommand(os.Args[1:]).ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "lanyard-webhook:", texts.EscapeLines(err.Error()))
		os.Exit(1)
	}
}
