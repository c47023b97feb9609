"""Where the package gives Python code to run: a list with reasons, so that no text of a user's becomes one.

In: the sources of the package. Out: nothing. Invariant: `eval`, `exec`, `compile` and unpickling stand in the places
below only; a text that comes from outside is read by a parser of ours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from sources import FILES, PACKAGE, nodes

_EVALUATES = ("eval", "exec", "compile", "__import__", "execfile")
_UNPICKLES = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
_OWN_CLASSES = "the text is written here, from the fields of our own classes, when they are defined"
_ALLOWED = {
    "armillary/base/node.py: exec": _OWN_CLASSES,
    "armillary/base/record.py: compile": _OWN_CLASSES,
    "armillary/base/record.py: exec": _OWN_CLASSES,
    "armillary/te/hybrid/text.py: compile": "one definition whose nodes were all looked at; defining it runs nothing",
    "armillary/te/hybrid/text.py: exec": "that definition, in a scope that holds the language's names alone",
    "armillary/autotvm/measure/build_server.py: pickle.loads": "from the pipes between a tuner and its build servers",
    "armillary/autotvm/measure/processes.py: pickle.load": "from the pipes between a tuner and its trials",
    "armillary/autotvm/measure/processes.py: pickle.loads": "from the pipe of a trial, which we started",
    "armillary/base/lazy.py: __import__": "notes the names of import statements of our own; runs nothing else",
    "armillary/contrib/popen_pool.py: pickle.loads": "from the pipe of a process that we started",
    "armillary/exec/popen_worker.py: pickle.loads": "from the pipe of the process that started this one",
}


def _places(file: Path) -> Iterator[str]:
    for node in nodes(file):
        match node:
            case ast.Call(ast.Name(name)) if name in _EVALUATES:
                yield name
            case ast.Attribute(ast.Name("builtins"), name) if name in _EVALUATES:
                yield name
            case ast.Attribute(ast.Name(module), "load" | "loads" | "Unpickler") if module in _UNPICKLES:
                yield f"{module}.{node.attr}"
            case ast.keyword("allow_pickle", ast.Constant(True)):
                yield "allow_pickle=True"
            case ast.Call(ast.Attribute(_, "runpy" | "run_path" | "run_module")):
                yield "runpy"


def test_every_place_that_runs_a_text_has_a_reason() -> None:
    places = {f"{f.relative_to(PACKAGE.parent).as_posix()}: {how}" for f in FILES for how in _places(f)}
    assert places == set(_ALLOWED), "read the text with a parser, or write down why it may run"
