#!/usr/bin/env bash
# Runs the tests whose subject differs from kernel to kernel in a virtual machine with Debian's kernel (scripts/vm.sh): control
# groups of version 2, netem, Open vSwitch's kernel datapath, labs over machines, RDMA devices.
set -euo pipefail

TESTS=(front_door conditions resources machines verbs_kernel)
# The machine's root is an overlay, and the kernel stacks no more than two (FILESYSTEM_MAX_STACK_DEPTH, include/linux/fs.h).
SKIP=(a_saved_node_is_an_image)

cd "$(dirname "$0")/.."
targets=() executables=() skips=()
for test in "${TESTS[@]}"; do targets+=(--test "$test"); done
for test in "${SKIP[@]}"; do skips+=(--skip "$test"); done
mapfile -t executables < <(cargo test --locked --package slipway "${targets[@]}" --no-run --message-format json |
  jq -r 'select(.profile.test and .executable) | .executable')
[ ${#executables[@]} -eq ${#TESTS[@]} ] || { echo "test-vm: the tests were not built" >&2; exit 1; }
# Beside the command under test, where labs look for it.
mapfile -t plug_ins < <(scripts/verbs.sh)
ln -f "${plug_ins[@]}" "$(dirname "${executables[0]}")/.."

# The test with parts that are for such a kernel alone, and that of a gateway over a device.
for test in "${executables[@]}"; do case $test in *verbs_kernel*) kernel=$test ;; esac; done
gateway=$(cargo test --locked --package slipway-verbs --test gateway --no-run --message-format json |
  jq -r 'select(.profile.test and .executable) | .executable')

# All of them, whichever fails.
code=0
# shellcheck disable=SC2016
scripts/vm.sh bash -ec '
  [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]
  cd crates/slipway
  skips=$1 kernel=$2 code=0; shift 2
  export CARGO_MANIFEST_DIR=$PWD SLIPWAY_PLUG_IN_IS_BUILT=1
  for test; do "$test" --test-threads 1 $skips || code=1; done
  "$kernel" --ignored beside_devices || code=1
  exit $code
' vm "${skips[*]}" "$kernel" "${executables[@]}" || code=1

# Two machines, each with a device. ssh finds `slipway` on the other by the path. Beside it are other programs, with names such as
# `rdma`: they must not come before the system's.
commands=$PWD/target/vm/commands
mkdir -p "$commands"
ln -sfn "$(realpath "$(dirname "$kernel")/../slipway")" "$commands/slipway"
# shellcheck disable=SC2016
PATH=$commands:$PATH scripts/vm.sh --pair bash -ec '
  cd crates/slipway
  export CARGO_MANIFEST_DIR=$PWD SLIPWAY_PLUG_IN_IS_BUILT=1
  kernel=$1 gateway=$2 code=0
  for test in between_machines outside; do "$kernel" --ignored $test || code=1; done
  "$gateway" --ignored --test-threads 1 || code=1
  exit $code
' vm "$kernel" "$gateway" || code=1
exit $code
