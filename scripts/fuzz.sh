#!/usr/bin/env bash
# Gives what reads files, images, frames and requests input that nobody wrote (libFuzzer), and ends with the first that breaks a promise.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]     seconds for each target (default: 60 for all)
#   scripts/fuzz.sh replay [TARGET...]        only what is there, with the project's own toolchain
#
# It begins with the files of the tests and the examples, or fuzz/seeds where these have none, and with what earlier runs
# found (fuzz/corpus); what breaks a promise lies in fuzz/artifacts. The target `archive` unpacks device nodes and takes root.
set -euo pipefail
shopt -s globstar nullglob

# Longest input in bytes: of most targets, and of those whose least useful input is longer (analyses, archives, databases).
LONGEST=4096
LONGER=16384

fail() { printf 'fuzz: %s\n' "$*" >&2; exit 1; }

cd "$(dirname "$0")/.."
case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit ;;
  replay) seconds=0 ;;
  *) seconds=${1:-60} ;;
esac
shift $(($# > 0))
[[ $seconds =~ ^[0-9]+$ ]] || fail "\`$seconds\` is no number of seconds, and not replay"
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | tail -n +2)
if [ "$(id -u)" -ne 0 ] && [[ " ${targets[*]} " = *" archive "* ]]; then
  fail "the target archive unpacks device nodes: run it as root, or name other targets"
fi

# What a target begins with.
seeds() {
  local tests=crates/slipway-lab/tests
  case $1 in
    lab_file) printf '%s\n' "$tests"/{right,wrong}/*.yaml examples/**/*.yaml ;;
    scenario) printf '%s\n' "$tests"/scenarios/**/*.yaml ;;
    trace) printf '%s\n' "$tests"/scenarios/**/*.{txt,csv,json} ;;
    campaign_file) printf '%s\n' crates/slipway-campaign/tests/{right,wrong}/*.yaml examples/campaigns/*/*.yaml ;;
    host | machine_folder) printf '%s\n' crates/slipway-host/tests/machines/*.txt ;;
    rule) printf '%s\n' crates/slipway-host/rules/*.yaml ;;
    platform) printf '%s\n' crates/slipway-platform/tests/platform/*.{xml,json} ;;
    *) printf '%s\n' "fuzz/seeds/$1"/* ;;
  esac
}

# Many small files are made and removed.
room=$(mktemp -d -p /dev/shm slipway-fuzz-XXXXXX)
trap 'rm -rf "$room"' EXIT

triple=$(uname -m)-unknown-linux-gnu
if [ "$seconds" -eq 0 ]; then
  build=${CARGO_TARGET_DIR:-target}
  cargo build --manifest-path fuzz/Cargo.toml --target-dir "$build" --target "$triple"
  build=$build/$triple/debug
else
  (cd fuzz && cargo +nightly fuzz build --target "$triple") || fail "scripts/setup.sh fuzz installs what this takes"
  build=fuzz/target/$triple/release
fi

for target in "${targets[@]}"; do
  corpus=fuzz/corpus/$target artifacts=fuzz/artifacts/$target begin=$room/$target
  mkdir -p "$corpus" "$artifacts" "$begin"
  while read -r seed; do [ ! -f "$seed" ] || cp "$seed" "$begin/${seed//\//_}"; done < <(seeds "$target")
  case $target in analysis | host | machine_folder | outputs | upload) longest=$LONGER ;; *) longest=$LONGEST ;; esac
  how=()
  [ "$seconds" -eq 0 ] || how=("-artifact_prefix=$artifacts/" "-max_total_time=$seconds" "-max_len=$longest")
  printf 'fuzz: %s: ' "$target"
  TMPDIR=$room "$build/$target" "$corpus" "$begin" "${how[@]}" >"$room/log" 2>&1 ||
    { tail -n 40 "$room/log"; fail "$target: see above; the input is in $artifacts"; }
  tail -n 1 "$room/log"
done
