#!/usr/bin/env python3
"""The report of dtn, from its records: report.py FOLDER"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from experiment import compared, machine, number, spread, table  # noqa: E402

# Data transfer nodes, RedIRIS 2019, by experiment.
SOURCE = {
    "buffers": "halving the buffers can halve the throughput",
    "mtu": "MTU 9000 gives more than 3 × MTU 1500",
    "congestion-0.01": "of 10 GbE: BBR 8.29, CUBIC 2.79, HTCP 1.67 Gb/s",
    "congestion-0.1": "of 10 GbE: BBR 5.68, CUBIC 0.378, HTCP 0.205 Gb/s",
    "disk": "read 2630 MB/s of 2700 with blocks of 16 kB to 16 MB; write with fdatasync 1020 of 1080",
    "readahead": "best with 8192 to 262144 blocks of 512 B (4 MiB to 128 MiB), less beyond",
    "dirty": "written with fdatasync 1020 of 1080 MB/s with a lower vm.dirty_background_ratio and a higher vm.dirty_ratio",
    "placement": "the right NUMA node gives some 10 %",
    "journal-journal": "data=journal writes about 360 MB/s of 1020; ordered and writeback are equal",
}


def main(folder):
    shown = []
    for place in sorted(path.parent for path in Path(folder).glob("*/records.jsonl")):
        begin, _ = compared(place)
        shown or shown.append(f"# A data transfer node\n\n{machine(begin['machine'])}; {begin['started'][:10]}; {begin['repeat']} rounds.\n")
        summary = json.loads((place / "summary.json").read_text())
        words = {(one["way"], one["figure"]): one["words"] for one in summary.get("saturated", [])}
        source = SOURCE.get(place.name, SOURCE.get(place.name.split("-")[0], "–"))
        shown.append(f"## {place.name}\n\nThe source: {source}. The limit: {(begin.get('bench') or {}).get('limit', '–')}.\n")
        for figure in (figure for figure in summary["figures"] if figure["headline"]):
            _, ways = compared(place, figure["name"])
            rows = [
                [row["driver"], spread(ways[row["driver"]].values()),
                 number(row["ratio"]["median"]) + "×" if row["ratio"] else "–", words.get((row["driver"], figure["name"]), "–")]
                for row in figure["rows"]
            ]
            shown.append(table(["way", f"{figure['name']}, {figure['unit']}", "of the limit", "saturated"], rows))
    print("\n".join(shown))


main(sys.argv[1])
