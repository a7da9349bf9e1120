#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes anew what is made from something else: the chart's README from the
# comments of its values.yaml, and the files of which the chart and deploy/ each
# need a copy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=charts/lanyard
monitoring=deploy/components/monitoring

cp deploy/base/70-guard.yaml "$chart/files/guard.yaml"
cp "$chart/files/dashboard.json" "$monitoring/lanyard.json"
# The rules are the spec of a PrometheusRule, two columns to the right.
sed -i '/^spec:/q' "$monitoring/prometheusrule.yaml"
sed -e '/^#/d' -e 's/^./  &/' "$chart/files/rules.yaml" >>"$monitoring/prometheusrule.yaml"

cd test/charts
go tool helm-docs --chart-search-root=../../charts --sort-values-order=file --log-level=warning
