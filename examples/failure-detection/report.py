#!/usr/bin/env python3
"""The report of failure-detection, from its records: report.py FOLDER"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from experiment import machine, spread, table  # noqa: E402

NAMES = {"openmpi-agent": "Open MPI, by the agent", "openmpi-ssh": "Open MPI, by ssh", "mpich-agent": "MPICH, by the agent",
         "mpich-ssh": "MPICH, by ssh", "charm-ssh": "Charm++ (charm4py), by ssh"}
# Ruiz 2016 on Distem: by runtime and failure.
SOURCE = {"openmpi": dict.fromkeys(("graceful", "soft", "hard"), "detected, processes hang"),
          "mpich": dict.fromkeys(("graceful", "soft", "hard"), "detected, processes end"),
          "charm": {"graceful": "detected, rolled back", "soft": "detected, rolled back", "hard": "**not** detected"}}


def happened(trials):
    """What came of the trials of one kind, in words."""
    text = []
    for outcome, count in Counter(trial["outcome"] for trial in trials).most_common():
        of = [trial for trial in trials if trial["outcome"] == outcome]
        words = outcome if count == len(trials) else f"{outcome} ({count} of {len(trials)})"
        left = max(trial.get("left_over") or 0 for trial in of)
        if outcome == "aborted":
            words = f"detected, {words} after {spread((trial['ended'] for trial in of), ' s')}"
            words += f"; {left} processes left behind" if left else ""
        elif outcome == "hangs":
            noticed = [trial["noticed"] for trial in of if trial["noticed"] is not None]
            words = f"detected after {spread(noticed, ' s')}, but {words}" if noticed else f"**not** detected, {words}"
            words += f" beyond {of[0]['limit']:.0f} s"
        text.append(words)
    return "<br>".join(text)


def main(folder):
    trials = defaultdict(list)
    for line in Path(folder, "records.jsonl").read_text().splitlines():
        trial = json.loads(line)
        trials[trial["runtime"], trial["failure"]].append(trial)
    failures = list(dict.fromkeys(failure for _, failure in trials))
    rows = []
    for runtime in dict.fromkeys(runtime for runtime, _ in trials):
        rows.append([NAMES[runtime], *(happened(trials[runtime, failure]) for failure in failures)])
    for name, theirs in SOURCE.items():
        if any(runtime.startswith(name) for runtime, _ in trials):
            title = NAMES[name + "-ssh"].removesuffix(", by ssh").removesuffix(" (charm4py)")
            rows.append([f"*{title} in 2016*", *(theirs.get(failure, "–") for failure in failures)])
    facts = json.loads(Path(folder, "machine.json").read_text())
    rounds = max(map(len, trials.values()))
    print(f"# Failure detection\n\n{machine(facts)}; {rounds} trials of each. Seconds from the failure: median, least, greatest.\n")
    print(table(["runtime", *failures], rows, "---"))
    print("Every trial, with what was printed after the failure: [records](records.jsonl).")


main(sys.argv[1])
