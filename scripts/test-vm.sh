#!/usr/bin/env bash
# Runs the tests whose subject differs from kernel to kernel in a virtual machine with Debian's kernel (scripts/vm.sh):
# control groups of version 2, Open vSwitch's kernel datapath; and netem, held against what it is asked.
set -euo pipefail

TESTS=(front_door conditions resources)
# The machine's root is an overlay, and the kernel stacks no more than two (FILESYSTEM_MAX_STACK_DEPTH, include/linux/fs.h).
SKIP=(a_saved_node_is_an_image)

cd "$(dirname "$0")/.."
targets=() executables=() skips=()
for test in "${TESTS[@]}"; do targets+=(--test "$test"); done
for test in "${SKIP[@]}"; do skips+=(--skip "$test"); done
mapfile -t executables < <(cargo test --locked --package slipway "${targets[@]}" --no-run --message-format json |
  jq -r 'select(.profile.test and .executable) | .executable')
slipway=${executables[0]%/deps/*}/slipway
[ ${#executables[@]} -eq ${#TESTS[@]} ] || { echo "test-vm: the tests were not built" >&2; exit 1; }

# Emulated, a packet takes a while of its own: only losses are held to what is asked.
LAB='lab: netem
mechanism: netem
nodes: {n: {count: 2, networks: {net: {conditions: {delay: 50ms, loss: 20%}}}}}'

scripts/vm.sh bash -ec '
  [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]
  cd crates/slipway
  slipway=$1 lab=$2 skips=$3; shift 3
  echo "$lab" >/tmp/netem.yaml
  "$slipway" up --quiet /tmp/netem.yaml
  "$slipway" inspect netem n1 | grep "netem: "
  "$slipway" verify netem "n1->n2" --interval 10ms --json | jq -e ".[0].checks[] | select(.what == \"loss\") | .verdict == \"met\""
  "$slipway" down --quiet netem
  code=0
  for test; do CARGO_MANIFEST_DIR=$PWD "$test" --test-threads 1 $skips || code=1; done
  exit $code
' vm "$slipway" "$LAB" "${skips[*]}" "${executables[@]}"
