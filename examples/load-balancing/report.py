#!/usr/bin/env python3
"""The report of load-balancing, from its records: report.py FOLDER"""

import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from experiment import machine, ratios, spread, table  # noqa: E402

# Ruiz 2016, Stencil3D in Charm++, 128 processes on 8 hosts, seconds: without balancing, with RefineLB.
SOURCE = {"heterogeneous": (341, 320), "changing": (347, 322)}
NODES = {"homogeneous": "all alike", "heterogeneous": "half at half speed", "changing": "either half in turn, 5 s each"}


def main(folder):
    seconds, moves, sums = defaultdict(dict), defaultdict(list), set()
    for line in Path(folder, "records.jsonl").read_text().splitlines():
        run = json.loads(line)
        seconds[run["platform"], run["decomposition"]][run["round"]] = run["seconds"]
        moves[run["platform"]].append(run["moves"]) if run["decomposition"] == "adaptive" else None
        sums.add(run["sum"])
    if len(sums) != 1:
        sys.exit(f"report.py: failed to trust the runs: they should have one result, and have {sorted(sums)}")
    rows = []
    for platform, words in NODES.items():
        static, adaptive = (seconds[platform, name] for name in ("static", "adaptive"))
        source = SOURCE.get(platform)
        theirs = f"{source[0]} → {source[1]}: {source[1] / source[0]:.3g}×" if source else "–"
        rows.append([f"{platform}: {words}", spread(static.values()), spread(adaptive.values()),
                     f"**{spread(ratios(adaptive, static), '×')}**", spread(moves[platform]), theirs])
    facts = json.loads(Path(folder, "machine.json").read_text())
    print(f"# Static and adaptive decomposition\n\n{machine(facts)}; {len(static)} rounds.\n")
    print("Seconds: median, with least and greatest.\n")
    print(table(["nodes", "static", "adaptive", "adaptive / static", "times rows moved", "Ruiz 2016: off → RefineLB"], rows))
    print("Every run: [records](records.jsonl), and a folder each.")


main(sys.argv[1])
