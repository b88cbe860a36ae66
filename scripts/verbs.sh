#!/bin/bash
# Builds the plug-in of libibverbs, and prints where it is: verbs.sh [--release].
# The workspace makes static programs, and a plug-in is a dynamic library: it has flags, and so a folder, of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/verbs
profile=debug
[ "${1:-}" != --release ] || profile=release
RUSTFLAGS="-C target-feature=-crt-static" CARGO_TARGET_DIR=$folder \
  "${CARGO:-cargo}" rustc --quiet --locked --package slipway-verbs --lib --features plugin --crate-type cdylib "$@" >&2
built=$folder/$(uname -m)-unknown-linux-gnu/$profile
# The name that libibverbs looks for: its private interface's number stands in it.
ln -f "$built/libslipway_verbs.so" "$built/libslipway-rdmav34.so"
printf '%s\n' "$built/libslipway-rdmav34.so"
