// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause keeps a pod's namespaces open: it does nothing until it
// receives SIGINT or SIGTERM. It does not reap processes, because the pods do
// not share their process namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
