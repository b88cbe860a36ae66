#!/usr/bin/env bash
# Compiles the BPF programs of the crates, crates/*/bpf/*.bpf.c, to the objects beside them, which git keeps.
# So only somebody who changes a program needs a compiler for BPF.
#
#   scripts/bpf.sh          compile
#   scripts/bpf.sh check    compile elsewhere, and say which objects are not what their sources give
#
# One version of the compiler, Debian 12's, because another one gives other objects.
set -euo pipefail
cd "$(dirname "$0")/.."

clang=clang-14 strip=llvm-strip-14
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
stale=()
for source in crates/*/bpf/*.bpf.c; do
  object=${source%.c}.o
  # Only the layout of types that the kernel shares is taken from the machine's headers, the same on all machines.
  "$clang" -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -fdebug-prefix-map="$PWD=." \
    -I"/usr/include/$(uname -m)-linux-gnu" -c "$source" -o "$folder/object"
  # BTF stays, which the kernel reads; DWARF goes.
  "$strip" -g "$folder/object"
  if ! cmp --silent "$folder/object" "$object"; then
    stale+=("$object")
    [ "${1:-}" = check ] || cp "$folder/object" "$object"
  fi
done
if [ "${1:-}" = check ] && [ ${#stale[@]} -gt 0 ]; then
  printf 'stale: %s\n' "${stale[@]}" >&2
  echo 'Hint: run make bpf' >&2
  exit 1
fi
