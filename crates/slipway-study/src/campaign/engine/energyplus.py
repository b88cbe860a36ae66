"""Runs EnergyPlus in the working folder: energyplus.py --model in.idf --weather in.epw [--annual] [--meter NAME]...

With --try MODEL..., it starts the first of these models, and ends before the weather begins. It only reads the others.

Its errors become this program's last words, and so the message of the point's failure.
"""

import argparse
import difflib
import os
import re
import sqlite3
import sys

# Entries of eplusout.err in a message, and lines of each. A worker keeps the last eight lines.
ENTRIES = 3
LINES = 2
# Characters of a line: a longer one counts as several.
LINE = 4096


def parser():
    options = argparse.ArgumentParser()
    options.add_argument("--model")
    options.add_argument("--weather")
    options.add_argument("--annual", action="store_true")
    options.add_argument("--tables", action="store_true")
    options.add_argument("--meter", action="append", default=[])
    options.add_argument("--variable", action="append", default=[])
    options.add_argument("--try", dest="trial", nargs="+", metavar="MODEL")
    return options


def errors():
    """Severe and fatal errors in EnergyPlus' own words."""
    entries, fatal = [], []
    try:
        with open("eplusout.err", encoding="utf-8", errors="replace") as file:
            sort(iter(lambda: file.readline(LINE), ""), entries, fatal)
    except OSError:
        return ["EnergyPlus wrote no eplusout.err"]
    # The first errors are causes, and the fatal one is the end.
    return [line for entry in entries + fatal for line in entry]


def sort(lines, entries, fatal):
    """Sorts the first errors out. A model that goes wrong writes gigabytes of them: only the first are kept."""
    into = None
    for line in lines:
        found = re.match(r"\s*\*\*\s*(Severe|Fatal|Warning|~~~)\s*\*\*\s?(.*)", line)
        if found is None:
            continue
        kind, text = found.groups()
        if kind == "~~~":
            if into is not None and len(into) < LINES:
                into.append("  " + text.strip())
            continue
        into = [f"{kind}: {text.strip()}"]
        if kind == "Severe" and len(entries) < ENTRIES:
            entries.append(into)
        elif kind == "Fatal" and not fatal:
            fatal.append(into)


def fail(*lines):
    print(*lines, sep="\n", file=sys.stderr)
    sys.exit(1)


def simulation(options):
    """EnergyPlus' own options for a whole run."""
    return ["-w", options.weather] + (["-a"] if options.annual else [])


def run(model, words, is_trial=False):
    from pyenergyplus.api import EnergyPlusAPI

    api = EnergyPlusAPI()
    state = api.state_manager.new_state()
    api.runtime.set_console_output_status(state, False)
    if is_trial:
        # All input is read then, sizes are known, and the dictionaries of reports are written.
        api.runtime.callback_begin_new_environment(state, api.runtime.stop_simulation)
    words = words + ["-d", "."]
    with open(model, encoding="utf-8", errors="replace") as file:
        if re.search(r"^\s*HVACTemplate:", file.read(), re.IGNORECASE | re.MULTILINE):
            words.append("-x")
    # It is written only at the end, and one that is there would be another run's.
    if os.path.exists("eplusout.err"):
        os.remove("eplusout.err")
    # Its own last line on standard error says only that there were errors, and those are what the message is for.
    kept = os.dup(2)
    os.dup2(1, 2)
    code = api.runtime.run_energyplus(state, words + [model])
    os.dup2(kept, 2)
    api.state_manager.delete_state(state)
    if code != 0:
        fail(*(errors() or [f"EnergyPlus ended with exit code {code}"]))


def missing(name, kind, is_meter, database):
    rows = database.execute("select distinct Name from ReportDataDictionary where IsMeter = ?", [is_meter])
    known = [row[0] for row in rows]
    if name.casefold() in (other.casefold() for other in known):
        return
    # EnergyPlus writes dictionaries of all that the model could report.
    possible = set(known)
    for path in ["eplusout.mdd"] if is_meter else ["eplusout.rdd"]:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                possible |= set(re.findall(r"^(?:Output:\w+,\*?,?|[^,]*,[^,]*,)([^,\[;]+)", file.read(), re.MULTILINE))
        except OSError:
            pass
    near = difflib.get_close_matches(name, possible, 4, 0.4)
    words = f"; near it are: {', '.join(near)}" if near else ""
    fail(f"EnergyPlus reported no {kind} `{name}` for this model{words}")


def check(options):
    """Whether the results are what the campaign's outputs read."""
    if not (options.meter or options.variable):
        return
    database = sqlite3.connect("file:eplusout.sql?mode=ro&immutable=1", uri=True)
    for name in options.meter:
        missing(name, "meter", 1, database)
    for name in options.variable:
        missing(name, "variable", 0, database)
    if options.trial:
        return
    (count,) = database.execute("select count(*) from EnvironmentPeriods where EnvironmentType = 3").fetchone()
    if count == 0:
        fail(
            "EnergyPlus ran design days only, which say nothing of a year",
            "Hint: leave `annual: false` out, or have the model's SimulationControl run its weather file periods",
        )


def main():
    options = parser().parse_args()
    for model in options.trial[1:] if options.trial else []:
        # Only to convert it: EnergyPlus holds each field against its schema.
        run(model, ["--convert-only"])
    run(options.trial[0] if options.trial else options.model, simulation(options), bool(options.trial))
    check(options)


if __name__ == "__main__":
    main()
