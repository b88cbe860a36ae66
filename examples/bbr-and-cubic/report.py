#!/usr/bin/env python3
"""The report of bbr-and-cubic, from its records: report.py FOLDER"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from experiment import compared, machine, ratios, spread, table  # noqa: E402

# 10 GbE, throughput in Mbit/s by loss in percent: RedIRIS 2019.
SOURCE = {"0.01": (8290, 2790), "0.1": (5680, 378)}


def cell(ways, loss, trip):
    bbr, cubic = (ways[f"loss {loss} %, {trip} ms, from {name}"] for name in ("bbr", "cubic"))
    return f"**{spread(ratios(bbr, cubic), '×')}**<br>{spread(bbr.values())} / {spread(cubic.values())}"


def main(folder):
    begin, ways = compared(Path(folder, "compare"))
    names = [re.fullmatch(r"loss (\S+) %, (\d+) ms, from bbr", way) for way in begin["drivers"]]
    cells = [name.groups() for name in names if name]
    losses, trips = (list(dict.fromkeys(column)) for column in zip(*cells))
    source = {loss: f"**{bbr / cubic:.3g}×**<br>{bbr} / {cubic}" for loss, (bbr, cubic) in SOURCE.items()}
    rate = re.search(r"rate=(\S+)", " ".join(begin["command"]))[1]
    print(f"# BBR against CUBIC\n\n{machine(begin['machine'])}; {begin['started'][:10]}; {begin['repeat']} rounds; link of {rate}.\n")
    print("Each cell: BBR's throughput over CUBIC's, then both in Mbit/s; medians, with least and greatest.\n")
    heading = ["loss", *(f"round trip {trip} ms" for trip in trips), "RedIRIS 2019, 10 Gbit/s"]
    rows = [[f"{loss} %", *(cell(ways, loss, trip) for trip in trips), source.get(loss, "–")] for loss in losses]
    print(table(heading, rows))
    print("Every transfer: [records](compare/records.jsonl). Plots: [report](compare/report.html).")


main(sys.argv[1])
