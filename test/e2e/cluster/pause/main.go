// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces open: it does nothing until it is told
// to end. It reaps nothing, because the pods that it is for do not share their
// process namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM)
	<-told
}
