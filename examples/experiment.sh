# shellcheck shell=bash
# What the experiments' `run` programs share; they source it.

HERE=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
NAME=$(basename "$HERE")

fail() { printf '%s: failed to %s\n' "$NAME" "$*" >&2; exit 1; }

wrong() { printf '%s: %s\nHint: see %s --help\n' "$NAME" "$*" "$0" >&2; exit 2; }

say() { printf '%s: %s\n' "$NAME" "$*" >&2; }

# The comment at the top of a `run` is its help.
help() { sed -n '2,/^$/s/^# \{0,1\}//p' "$HERE/run"; exit 0; }

# need PROGRAM PACKAGE: what an experiment cannot do without.
need() {
  command -v "$1" >/dev/null || fail "find $1"$'\n'"Hint: install it with \`apt-get install $2\`, or \`scripts/setup.sh run test\` for all"
}

# Root, Slipway, and a new folder for what is measured, OUT: all that every experiment needs.
prepare() {
  [ "$(id -u)" -eq 0 ] || fail "make labs: that takes root"$'\n'"Hint: sudo --preserve-env=PATH $0"
  command -v slipway >/dev/null || fail "find slipway"$'\n'"Hint: \`make build\`, and put target/$(uname -m)-unknown-linux-gnu/release first into PATH"
  need /usr/bin/python3 python3
  OUT=${OUT:-$PWD/$NAME-$(date +%Y%m%dT%H%M%S)}
  mkdir -- "$OUT" || fail "make the folder $OUT"$'\n'"Hint: it must not exist yet; choose another with --out"
  OUT=$(cd "$OUT" && pwd)
}

# The report is made from the records alone: `report.py FOLDER` makes it again.
report() {
  /usr/bin/python3 "$HERE/report.py" "$OUT" > "$OUT/report.md"
  cat "$OUT/report.md"
  say "report and records: $OUT"
}
