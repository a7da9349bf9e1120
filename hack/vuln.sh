#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Looks for known vulnerabilities with bin/govulncheck ("make vuln" builds it).
# The arguments are the directories of Go modules. Tests and the programs of
# "tool" directives are included: they run with the rights of a developer or of CI.
#
# GOVULNDB is the URL of the vulnerability database, https://vuln.go.dev by
# default; file:///DIRECTORY for a copy.
#
# Exit codes: 0 if nothing was found, 3 if something was found, 4 if there is no
# database to look in, and 1 if a module could not be scanned. make prints the
# code ("Error 4") and itself exits with 2.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root found=3 no_database=4
database=${GOVULNDB:-https://vuln.go.dev}

if [ $# -eq 0 ]; then
  echo "vuln.sh: got no module, want directories of Go modules" >&2
  exit 1
fi

# Without a database, or with an empty directory, govulncheck itself may report that
# it found nothing. The line with the date is missing then, or has the year 1.
version=$("$root/bin/govulncheck" -db "$database" -version 2>&1) || true
updated=$(sed -n 's/^DB updated: //p' <<<"$version")
case $updated in
  "" | 0001-*)
    cat >&2 <<MESSAGE
no vulnerability database: $database cannot be read. Nothing was checked.
Run this where vuln.go.dev can be reached, or set GOVULNDB to a copy:
  GOVULNDB=file:///DIRECTORY make vuln
https://vuln.go.dev/vulndb.zip is the whole database; extract it to DIRECTORY.
MESSAGE
    exit "$no_database"
    ;;
esac
echo "vulnerability database: $database, updated $updated"

# All modules are scanned, also after a finding.
result=0
for module in "$@"; do
  echo "govulncheck in $module"
  status=0
  (cd "$root/$module" && "$root/bin/govulncheck" -db "$database" -test ./... tool) || status=$?
  case $status in
    0) ;;
    "$found") [ "$result" -ne 0 ] || result=$found ;;
    *)
      echo "vuln.sh: $module could not be scanned (exit code $status)" >&2
      result=1
      ;;
  esac
done
exit "$result"
