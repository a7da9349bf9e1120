#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Regenerates the chart's README from the comments in values.yaml, and the files
# that the chart and deploy/ both need a copy of.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=charts/lanyard
monitoring=deploy/components/monitoring

cp deploy/base/70-guard.yaml "$chart/files/guard.yaml"
cp "$chart/files/dashboard.json" "$monitoring/lanyard.json"
# The rules are the spec of a PrometheusRule, indented by two more columns.
sed -i '/^spec:/q' "$monitoring/prometheusrule.yaml"
sed -e '/^#/d' -e 's/^./  &/' "$chart/files/rules.yaml" >>"$monitoring/prometheusrule.yaml"

cd test/charts
go tool helm-docs --chart-search-root=../../charts --sort-values-order=file --log-level=warning
