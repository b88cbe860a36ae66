#!/usr/bin/env python3
"""The report of network-and-processors, from its records: report.py FOLDER"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from experiment import compared, machine, ratios, spread, table  # noqa: E402


def main(folder):
    begin, ways = compared(Path(folder, "compare"))
    figure = json.loads(Path(folder, "compare", "summary.json").read_text())["figures"][0]
    # From slow to fast.
    cells = [way.split("; ") for way in reversed(begin["drivers"])]
    networks, shares = (list(dict.fromkeys(column)) for column in zip(*cells))
    fastest = ways[begin["drivers"][0]]
    better = "higher" if figure["higher_is_better"] else "lower"

    def cell(network, share):
        values = ways[f"{network}; {share}"]
        return f"**{spread(values.values())}**<br>{spread(ratios(values, fastest), '×')}"

    print("# From slow network and slow processors to fast network and fast processors\n")
    print(f"{machine(begin['machine'])}; {begin['started'][:10]}; {begin['repeat']} rounds.\n")
    print(f"{figure['name']}, {figure['unit']} ({better} is better): median, with least and greatest, and its ratio to the fastest.\n")
    print(table(["network, each way", *(f"{share} of a core" for share in shares)],
                [[network, *(cell(network, share) for share in shares)] for network in networks]))
    print("Every run: [records](compare/records.jsonl). Plots: [report](compare/report.html).")


main(sys.argv[1])
