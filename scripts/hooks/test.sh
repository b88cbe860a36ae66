#!/usr/bin/env bash
# Holds the commit-msg hook to messages that it must take and refuse. `make lint` runs it.
set -euo pipefail
cd "$(dirname "$0")"

file=$(mktemp)
trap 'rm -f "$file"' EXIT

check() {
  printf "$3" >"$file"
  local seen=refused
  ./commit-msg "$file" 2>/dev/null && seen=taken
  [ "$seen" = "$1" ] || { printf 'commit-msg: a message with %s was %s\n' "$2" "$seen" >&2; exit 1; }
}

check taken 'subject, empty line and reason' 'network: drop frames from unknown senders\n\nThey reached the host.\n'
check taken 'two areas and a comment' '# comment\nengine, fast: name the journal\n'
check taken 'a merge' "Merge branch 'main'\n"
check taken '72 characters' "lab: $(printf 'a%.0s' {1..67})\n"
check refused '73 characters' "lab: $(printf 'a%.0s' {1..68})\n"
check refused 'no area' 'drop frames\n'
check refused 'a capital verb' 'network: Drop frames\n'
check refused 'a past tense' 'network: dropped frames\n'
check refused 'a full stop' 'network: drop frames.\n'
check refused 'no empty line' 'network: drop frames\nThey reached the host.\n'
check refused 'no text' '\n'
