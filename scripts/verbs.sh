#!/bin/bash
# Builds the plug-in of libibverbs, and prints its paths, one a line: verbs.sh [--release].
# The workspace makes static programs, and a plug-in is a dynamic library: it has flags, and so a folder, of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

# The numbers of libibverbs' private interface that one build serves (crates/slipway-verbs/src/plugin/abi/interface.rs).
NUMBERS=(34 57 59)

folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/verbs
profile=debug
[ "${1:-}" != --release ] || profile=release
RUSTFLAGS="-C target-feature=-crt-static" CARGO_TARGET_DIR=$folder \
  "${CARGO:-cargo}" rustc --quiet --locked --package slipway-verbs --lib --features plugin --crate-type cdylib "$@" >&2
built=$folder/$(uname -m)-unknown-linux-gnu/$profile
# libibverbs completes the name with its own number.
for number in "${NUMBERS[@]}"; do
  ln -f "$built/libslipway_verbs.so" "$built/libslipway-rdmav$number.so"
  printf '%s\n' "$built/libslipway-rdmav$number.so"
done
