"""Runs OpenStudio's SDK in the working folder, and EnergyPlus on the model that comes of it.

openstudio.py --model in.osm --weather in.epw [--annual] --reporting Hourly [--meter NAME]...
openstudio.py --workflow workflow/in.osw [--set MEASURE/ARGUMENT=VALUE]... [--output NAME]...

Measures in Python run by the SDK. A workflow with a measure in Ruby runs by the program `openstudio`.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

# This file must not be found where the SDK's module of the same name is wanted.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
spec = importlib.util.spec_from_file_location("slipway_energyplus", os.path.join(HERE, "energyplus.py"))
energyplus = importlib.util.module_from_spec(spec)
spec.loader.exec_module(energyplus)
fail = energyplus.fail


def load(openstudio, path):
    translator = openstudio.osversion.VersionTranslator()
    model = translator.loadModel(openstudio.path(path))
    if not model.is_initialized():
        fail(f"OpenStudio cannot read {path}", *[error.logMessage() for error in translator.errors()][:6])
    return model.get()


def translate(openstudio, model):
    translator = openstudio.energyplus.ForwardTranslator()
    workspace = translator.translateModel(model)
    if translator.errors():
        fail("OpenStudio cannot translate the model", *[error.logMessage() for error in translator.errors()][:6])
    return workspace


def simulate(options, workspace):
    import openstudio

    if not workspace.save(openstudio.path("in.idf"), True):
        fail("OpenStudio cannot write in.idf")
    with open("in.idf", encoding="utf-8") as file:
        text = file.read()
    if options.all:
        text = re.sub(r"(^\s*Output:Variable,[^;]*,[^,;]*,)[^,;]*", rf"\g<1>\n  {options.reporting}", text, flags=re.M)
        text = re.sub(r"(^\s*Output:Meter(?::MeterFileOnly)?,[^,;]*,)[^,;]*", rf"\g<1>\n  {options.reporting}", text, flags=re.M)
    # One object at most may ask for the database.
    text = re.sub(r"^\s*Output:SQLite,[^;]*;.*$", "", text, flags=re.M | re.I)
    text += "\nOutput:SQLite,SimpleAndTabular;\n"
    text += "".join(f"Output:Meter,{name},{options.reporting};\n" for name in options.meter)
    text += "".join(f"Output:Variable,*,{name},{options.reporting};\n" for name in options.variable)
    if options.tables and "Output:Table:SummaryReports" not in text:
        text += "Output:Table:SummaryReports,AllSummary;\n"
    with open("in.idf", "w", encoding="utf-8") as file:
        file.write(text)
    energyplus.run("in.idf", energyplus.simulation(options))
    energyplus.check(options)


def measure_folder(step):
    folder = os.path.join("workflow", "measures", os.path.basename(step["measure_dir_name"].rstrip("/")))
    if not os.path.isdir(folder):
        fail(f"the workflow's measure {step['measure_dir_name']} is not there")
    return folder


def matches(step, name):
    return name in (step.get("name"), os.path.basename(step["measure_dir_name"].rstrip("/")), step["measure_dir_name"])


def set_arguments(workflow, words):
    for word in words:
        path, value = word.split("=", 1)
        measure, argument = path.split("/", 1)
        steps = [step for step in workflow["steps"] if matches(step, measure)]
        # A step's own name says which of several steps with one measure is meant.
        named = [step for step in steps if step.get("name") == measure]
        for step in named or steps:
            step.setdefault("arguments", {})[argument] = typed(value)
        if not steps:
            fail(f"the workflow has no step `{measure}`")


def typed(text):
    """The value that a text stands for: what JSON says, or the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def step_name(step):
    return step.get("name") or os.path.basename(step["measure_dir_name"].rstrip("/"))


def variant(value):
    kind = value.variantType().valueName()
    return {
        "Boolean": lambda: value.valueAsBoolean(),
        "Integer": lambda: value.valueAsInteger(),
        "Double": lambda: value.valueAsDouble(),
        "String": lambda: value.valueAsString(),
    }.get(kind, lambda: None)()


def apply(openstudio, step, kind, model, workspace, results):
    """Runs one measure in Python, where it is of this kind."""
    folder = measure_folder(step)
    name = step_name(step)
    path = os.path.join(folder, "measure.py")
    spec = importlib.util.spec_from_file_location(f"measure_{len(results)}_{abs(hash(name))}", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    sys.path.remove(folder)
    bases = {
        "model": openstudio.measure.ModelMeasure,
        "energyplus": openstudio.measure.EnergyPlusMeasure,
        "reporting": openstudio.measure.ReportingMeasure,
    }
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    found = [(word, one) for one in classes for word, base in bases.items() if issubclass(one, base)]
    if not found:
        fail(f"the measure {name} has no class of a measure")
    word, its_class = found[0]
    if word != kind:
        return
    measure = its_class()
    subject = workspace if word == "energyplus" else model
    arguments = measure.arguments(subject)
    chosen = openstudio.measure.convertOSArgumentVectorToMap(arguments)
    known = [argument.name() for argument in arguments]
    for argument, value in step.get("arguments", {}).items():
        if argument == "__SKIP__":
            continue
        if argument not in known:
            fail(f"the measure {name} has no argument `{argument}`; it has: {', '.join(known)}")
        one = next(one for one in arguments if one.name() == argument)
        taken = one.setValue(value) or one.setValue(str(value))
        if not taken:
            fail(f"the measure {name} does not take {value!r} for `{argument}`")
        chosen[argument] = one
    runner = openstudio.measure.OSRunner(openstudio.WorkflowJSON())
    if model is not None:
        runner.setLastOpenStudioModel(model)
    if word == "reporting":
        runner.setLastEnergyPlusSqlFilePath(openstudio.path("eplusout.sql"))
        if workspace is not None:
            runner.setLastEnergyPlusWorkspace(workspace)
    ended = measure.run(subject, runner, chosen) if word != "reporting" else measure.run(runner, chosen)
    result = runner.result()
    said = list(result.stepErrors())
    if not ended or said:
        fail(f"the measure {name} failed", *said[:6])
    for value in result.stepValues():
        results[f"{name}.{value.name()}"] = variant(value)


def skipped(step):
    return str(step.get("arguments", {}).get("__SKIP__", False)).lower() == "true"


def run_steps(options, workflow):
    import openstudio

    seed = workflow.get("seed_file")
    model = load(openstudio, os.path.join("workflow", "files", os.path.basename(seed))) if seed else openstudio.model.Model()
    results = {}
    steps = [step for step in workflow["steps"] if not skipped(step)]
    for step in steps:
        apply(openstudio, step, "model", model, None, results)
    workspace = translate(openstudio, model)
    for step in steps:
        apply(openstudio, step, "energyplus", model, workspace, results)
    options.weather = os.path.join("workflow", "files", os.path.basename(workflow["weather_file"]))
    simulate(options, workspace)
    for step in steps:
        apply(openstudio, step, "reporting", model, workspace, results)
    return results


def run_program(workflow):
    """Runs the whole workflow by the program `openstudio`."""
    program = shutil.which("openstudio")
    if program is None:
        fail("a measure in Ruby needs the program `openstudio`, and it is not installed")
    workflow = dict(workflow, measure_paths=["measures"], file_paths=["files"], root=os.path.abspath("workflow"))
    path = os.path.join("workflow", "slipway.osw")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(workflow, file)
    code = subprocess.run([program, "run", "-w", path], check=False).returncode
    results = {}
    try:
        with open(os.path.join("workflow", "out.osw"), encoding="utf-8") as file:
            out = json.load(file)
    except (OSError, ValueError):
        fail(f"openstudio ended with exit code {code}, and without out.osw")
    for step in out.get("steps", []):
        result = step.get("result", {})
        if code != 0 and result.get("step_errors"):
            fail(f"the measure {step_name(step)} failed", *result["step_errors"][:6])
        for value in result.get("step_values", []):
            results[f"{step_name(step)}.{value['name']}"] = value.get("value")
    if code != 0:
        fail(f"openstudio ended with exit code {code}: {out.get('completed_status', '')}")
    database = os.path.join("workflow", "run", "eplusout.sql")
    if os.path.exists(database):
        os.replace(database, "eplusout.sql")
    return results


def run_workflow(options):
    with open(options.workflow, encoding="utf-8") as file:
        workflow = json.load(file)
    workflow.setdefault("steps", [])
    set_arguments(workflow, options.set)
    ruby = [step for step in workflow["steps"] if not os.path.exists(os.path.join(measure_folder(step), "measure.py"))]
    results = run_program(workflow) if ruby else run_steps(options, workflow)
    missing = [name for name in options.output if results.get(name) is None]
    if missing:
        fail(f"no measure registered `{missing[0]}`; registered are: {', '.join(sorted(results)) or 'none'}")
    with open("results.json", "w", encoding="utf-8") as file:
        json.dump({name: results[name] for name in options.output}, file)


def main():
    parser = energyplus.parser()
    parser.add_argument("--workflow")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--output", action="append", default=[])
    parser.add_argument("--reporting", default="Hourly")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if options.workflow:
        # Tables belong to every workflow; the run periods are the model's own, as for the program `openstudio`.
        options.tables = True
        run_workflow(options)
    else:
        import openstudio

        simulate(options, translate(openstudio, load(openstudio, options.model)))


if __name__ == "__main__":
    main()
