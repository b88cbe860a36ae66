"""Calls a function of the user's own at a point: python.py FILE FUNCTION OUTPUT...

Reads point.json, writes results.json. With --check FILE FUNCTION VARIABLE... it only looks whether the function is there and
takes the variables; it runs nothing of the file.
"""

import ast
import importlib.util
import json
import math
import os
import sys
import traceback


def check(path, function, variables):
    with open(path, encoding="utf-8") as file:
        try:
            tree = ast.parse(file.read(), path)
        except SyntaxError as error:
            sys.exit(f"line {error.lineno}: {error.msg}")
    # A name that is imported or assigned may be a function too, with any arguments.
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    names = {name.asname or name.name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for name in node.names}
    names |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)}
    if not found:
        if function in names or "*" in names:
            return
        there = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        sys.exit(f"there is no function `{function}`; there are: {', '.join(there) or 'none'}")
    arguments = found[-1].args
    taken = {argument.arg for argument in arguments.args + arguments.kwonlyargs}
    if arguments.kwarg is None:
        for variable in variables:
            if variable not in taken:
                sys.exit(f"`{function}` has no parameter `{variable}`")
    first = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    needed = [argument.arg for argument in (arguments.posonlyargs + arguments.args)[:first]]
    needed += [one.arg for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults) if default is None]
    for name in needed:
        if name not in variables:
            sys.exit(f"`{function}` needs `{name}`, and the campaign has no such variable")


def plain(name, value):
    """A number, a text or a list of numbers. Arrays and numbers of numpy become those of Python."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(name, one) for one in value]
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        if not math.isfinite(value):
            sys.exit(f"`{name}` is {value}, not a finite number")
        return value
    sys.exit(f"`{name}` is of type {type(value).__name__}, not a number, a text or a list of numbers")


def main(path, function, *outputs):
    with open("point.json", encoding="utf-8") as file:
        values = json.load(file)["values"]
    # The file's own folder comes first, as where it is run by itself.
    sys.path.insert(0, os.getcwd())
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        sys.exit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    result = getattr(module, function)(**values)
    if not isinstance(result, dict):
        if len(outputs) != 1:
            sys.exit(f"`{function}` returned one value, and the campaign has {len(outputs)} outputs; return a dict")
        result = {outputs[0]: result}
    for output in outputs:
        if output not in result:
            sys.exit(f"`{function}` returned {', '.join(map(str, result)) or 'nothing'}, and no `{output}`")
    results = {str(name): plain(name, value) for name, value in result.items() if name in outputs}
    with open("results.json", "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        try:
            main(*sys.argv[1:])
        except Exception as error:
            # A point's message is the last eight lines here, and lists show how it begins: so the error comes first, and
            # then the two innermost calls, of three lines each at most. The whole goes to the other log.
            traceback.print_exc(file=sys.stdout)
            words = f"{type(error).__name__}: {error}".splitlines()[:2]
            calls = traceback.format_tb(error.__traceback__, limit=-2)
            print(*words, "".join(calls).rstrip(), sep="\n", file=sys.stderr)
            sys.exit(1)
