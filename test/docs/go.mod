// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// The tests of the documentation, and the program that writes the generated
// pages of docs/reference. A Markdown parser and the packages of the product
// meet here, so it is a module of its own.
module github.com/lanyard-dev/lanyard/test/docs

go 1.26.0

replace github.com/lanyard-dev/lanyard => ../..

require github.com/yuin/goldmark v1.8.7
