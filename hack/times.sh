# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# For scripts that say where their time goes: they read this file, and call timed. $TIMES is
# the file with the times. A script that is called by such a script adds to the same table.

# timed NAME COMMAND... runs a program, and notes when it began and ended.
timed() {
  local begun=$EPOCHSECONDS status=0
  "${@:2}" || status=$?
  note "$1" "$begun"
  return "$status"
}

# note NAME BEGUN notes a step that ends now.
note() {
  printf '%d\t%d\t%s\n' "$2" "$EPOCHSECONDS" "$1" >>"$TIMES"
}

# times prints a table of all steps in the order in which they began.
times() {
  printf '\n%6s %8s  %s\n' began seconds step
  sort -n "$TIMES" | awk -F '\t' '
    NR == 1 { first = $1 }
    { printf "%6d %8d  %s\n", $1 - first, $2 - $1, $3; if ($2 > last) last = $2 }
    END { printf "%6s %8d  %s\n", "", last - first, "in all" }'
}
