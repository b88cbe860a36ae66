"""What the experiments' reports share: records of `slipway compare`, medians with their spread, Markdown tables."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median


def compared(folder, figure=None):
    """Values of a comparison that count, by way and round: {way: {round: value}}; and its first record."""
    lines = [json.loads(line) for line in Path(folder, "records.jsonl").read_text().splitlines()]
    begin, ways = lines[0], defaultdict(dict)
    for line in lines[1:]:
        if line["type"] == "measurement" and not line["warm_up"]:
            for sample in line["samples"]:
                if figure in (None, sample["figure"]):
                    ways[line["driver"]][line["round"]] = sample["value"]
    return begin, ways


def ratios(of, to):
    """What each round says by itself: both were measured within the same minutes."""
    return [of[number] / to[number] for number in sorted(of.keys() & to.keys()) if to[number]]


def number(value):
    """Three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values, unit=""):
    """Median, and least and greatest where there are several; a dash where there is nothing."""
    values = list(values)
    if not values:
        return "–"
    text = number(median(values)) + unit
    return text if len(values) == 1 else f"{text} ({number(min(values))}–{number(max(values))})"


def table(heading, rows, align="---:"):
    """A Markdown table; all but the first column are aligned alike."""
    lines = [heading, ["---"] + [align] * (len(heading) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def machine(facts):
    """Where it was measured, in a line."""
    return f"{facts['processor']}, {facts['cpus']} processors, Linux {facts['kernel']}"
