#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# runc for a machine whose root lacks CAP_SYS_RESOURCE. Docker 20.10 gives all
# capabilities that the kernel knows to a privileged container, and runc then fails
# with "unable to apply caps". This removes that one from the files that describe the
# container (create, run) or the process (exec), and calls runc.
set -euo pipefail

command= bundle=$PWD process=
previous=
for argument; do
  case $previous in
    --bundle | -b) bundle=$argument ;;
    --process | -p) process=$argument ;;
  esac
  case $argument in
    create | run | exec) command=${command:-$argument} ;;
  esac
  previous=$argument
done

file=
case $command in
  create | run) file=$bundle/config.json ;;
  exec) file=$process ;;
esac
if [ -n "$file" ]; then
  text=$(sed 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$file")
  printf '%s' "$text" >"$file"
fi
exec runc "$@"
