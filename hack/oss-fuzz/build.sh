#!/bin/bash -eu
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# OSS-Fuzz runs this in the root of the repository. compile_native_go_fuzzer_v2 is a
# program of its image: PACKAGE FUNCTION NAME. test/supplychain compares the list with
# the fuzz targets of the repository.

# target DIRECTORY FUNCTION...
target() {
  local function
  for function in "${@:2}"; do
    compile_native_go_fuzzer_v2 "github.com/lanyard-dev/lanyard/$1" "$function" "$function"
  done
}

target internal/cli/command FuzzPage
target internal/cli/migrate FuzzManifest
target internal/provider FuzzParseServiceAccount
target internal/rawjson FuzzAppendString FuzzDecode FuzzExtend FuzzSkip
target internal/settings FuzzParse
target internal/webhook/admission FuzzHandler FuzzParseReview
target internal/webhook/injector FuzzDifferential FuzzMemory FuzzPod FuzzRules FuzzServiceAccount FuzzSize
target pkg/mutate FuzzMountPath
target pkg/mutate/injected FuzzCompare FuzzCompareOthers
target pkg/mutate/internal/pod FuzzReadAll
