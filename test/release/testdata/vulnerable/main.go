// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package main calls the vulnerable function.
package main

import (
	"fmt"
	"os"

	"golang.org/x/text/language"
)

func main() {
	tags, _, err := language.ParseAcceptLanguage(os.Getenv("LANGUAGES"))
	fmt.Println(tags, err)
}
