#!/bin/bash
# Builds the plug-in of libibverbs, the carrier and the gateway, and prints their paths, one a line: verbs.sh [--release].
# The workspace makes static programs. A plug-in is a dynamic library, and the others load some: they have flags, and so a folder,
# of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

# The numbers of libibverbs' private interface that one build serves (crates/slipway-verbs/src/abi/interface.rs).
NUMBERS=(34 57 59)

folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/verbs
profile=debug
[ "${1:-}" != --release ] || profile=release
build() {
  RUSTFLAGS="-C target-feature=-crt-static" CARGO_TARGET_DIR=$folder \
    "${CARGO:-cargo}" rustc --quiet --locked --package slipway-verbs "$@" >&2
}
build --lib --features plugin --crate-type cdylib "$@"
build --bin slipway-carrier --features carrier "$@"
build --bin slipway-gateway --features carrier "$@"
built=$folder/$(uname -m)-unknown-linux-gnu/$profile
# libibverbs completes the name with its own number.
for number in "${NUMBERS[@]}"; do
  ln -f "$built/libslipway_verbs.so" "$built/libslipway-rdmav$number.so"
  printf '%s\n' "$built/libslipway-rdmav$number.so"
done
printf '%s\n' "$built/slipway-carrier" "$built/slipway-gateway"
