#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes the generated files: the manifests of deploy/ from the chart, its README and the
# descriptions of its schema from the comments of its values.yaml, the tables of docs/reference and
# ARCHITECTURE.md from the code, the pictures of terminals in docs/ from recordings, and the lists
# of docs/troubleshooting from the causes of errors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../test/charts"

# These tests compare the generated files, or write them. The policies contain the first file.
go test -count=1 -run='^TestTheFencesOfThePoliciesAreTheChartsFences$' . -update
go test -count=1 -run='^(TestTheHelpersFollowFromTheProviders|TestGeneratedManifestsAreUpToDate|TestEveryValueHasADescription)$' . -update
go tool helm-docs --chart-search-root=../../charts --sort-values-order=file --log-level=warning

cd ../..
# The first test writes a recording, which the second makes a picture of.
go test -count=1 -run='^TestTheRecordingOfTheFirstExample$' ./test/demo -update
cd test/docs
go test -count=1 -run='^TestThePicturesOfTerminalsShowRecordings$' . -update
go test -count=1 ./reference -update

cd ../..
go test -count=1 -run='^TestThePagesHaveTheCauses$' ./internal/cause -update
