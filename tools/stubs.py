"""Stubs: what type checkers and editors know of names that are resolved on first use.

In: the tables of names that packages give `base/lazy.py`, the operators' records, the functions of `ops/misc/user.py`.
Out: the texts of `__init__.pyi` files. Invariant: an operator's signature is `relay.op.signature`'s; lowered operators
of back ends are left out. Written by tools/write_docs.py, which says so when one is stale.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path

from armillary import relay
from armillary.compute.classes import class_of
from armillary.compute.functions.signatures import ROWS
from armillary.ops.misc.user import FUNCTIONS
from armillary.relay.lazy_registry import is_lowered
from armillary.relay.op import OPS, Op
from armillary.relay.op.signature import signature

_HEAD = '''"""Relay for type checkers: the operators as functions. Written by tools/write_docs.py; do not edit."""

import typing
from collections.abc import Sequence

from armillary.base.aliases import Array as _Array
from armillary.relay.expr import Call as _Call
from armillary.relay.expr import Expr as _Expr

_Operand: typing.TypeAlias = _Expr | _Array | float
_Operands: typing.TypeAlias = _Operand | Sequence[_Operand]
_Numbers: typing.TypeAlias = int | Sequence[int]
'''
_KINDS = {  # of attributes, as their classes write them: lists are taken for tuples, one number for one per axis
    "tuple[int, ...]": "_Numbers",
    "tuple[int, ...] | None": "_Numbers | None",
    "int | tuple[int, ...] | None": "_Numbers | None",
    "tuple[int, ...] | int | None": "_Numbers | None",
    "int | tuple[int, ...]": "_Numbers",
    "tuple[int, int]": "_Numbers",
    "tuple[float, ...]": "Sequence[float]",
    "int | Extent": "typing.Any",
    "tuple[tuple[int, int], ...]": "Sequence[Sequence[int]] | _Numbers",
}
_PACKAGES = (  # whose `__init__.py` are imports and a table of names
    "armillary",
    "armillary.autotvm",
    "armillary.autotvm.measure",
    "armillary.autotvm.task",
    "armillary.autotvm.tuner",
    "armillary.compute",
    "armillary.relay.testing",
    "armillary.rpc",
    "armillary.runtime",
    "armillary.tir.transform",
)
_PLAIN = re.compile(r"(str|int|bool|float)( \| None)?")


def relay_stub() -> str:
    """The stub of `armillary.relay`, whose operators are functions."""
    spaces: dict[str, list[str]] = defaultdict(list)
    shown = [name for name in sorted({*OPS, *FUNCTIONS}) if not is_lowered(name)]
    for name in shown:
        space, _, short = name.rpartition(".")
        spaces[space] += _user_function(name, short) if name in FUNCTIONS else _operator(OPS[name], short, bool(space))
    parts = [_HEAD, "\n".join(_imports()), "\n".join(spaces.pop(""))]
    return "\n\n".join([*parts, *(_space(name, lines) for name, lines in sorted(spaces.items()))]) + "\n"


def package_stub(package: str) -> str:
    """The stub of a package that is a table of names."""
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    lines = [f'"""Names of `{package}` for type checkers. Written by tools/write_docs.py; do not edit."""', ""]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module not in ("__future__", "armillary.base.lazy"):
            lines += [f"from {node.module} import {name.name} as {name.name}" for name in node.names]
    table = dict(inspect.getclosurevars(module.__getattr__).nonlocals["table"])
    own = {name: table.pop(name) for name in [*table] if table[name].startswith(class_of.__module__)}
    lines += [*_table(table), *(f"import {m} as {_alias(m)}" for m in _modules(own))]
    lines += ["from collections.abc import Sequence as Sequence"] if own else []
    lines += [*_public(lines, own), *(line for name, place in own.items() for line in _function_class(name, place))]
    return "\n".join([*lines, *(["", "__version__: str"] if hasattr(module, "__version__") else [])]) + "\n"


def _table(names: Mapping[str, str]) -> list[str]:
    lines = []
    for name, place in sorted(names.items()):
        module, _, attribute = place.partition(":")
        if not attribute:
            module, _, attribute = module.rpartition(".")
        lines.append(f"from {module} import {attribute} as {name}")
    return lines


def _modules(functions: Iterable[str]) -> list[str]:
    """Where the bases of functions of the compute library are."""
    kinds = [class_of(name) for name in functions if name[2:] in ROWS]
    return sorted({base.__module__ for kind in kinds for base in kind.__bases__})


def _alias(module: str) -> str:
    return "_" + "_".join(module.split(".")[-2:])


def _function_class(name: str, place: str) -> list[str]:
    """A function of the compute library, whose methods are made of the table of signatures."""
    own = place.rpartition(":")[2]
    if name != own:
        return ["", f"{name} = {own}"]
    kind = class_of(name)
    bases = ", ".join(f"{_alias(base.__module__)}.{base.__name__}" for base in kind.__bases__)
    configure, validate = (_call(kind, method) for method in ("configure", "validate"))
    text = [
        f"    def configure{configure} -> None: ...",
        "    @classmethod",
        f"    def validate{validate} -> Status: ...",
    ]
    return ["", f"class {name}({bases}):", f'    """{kind.__doc__}"""', "", *text]


def _call(kind: type, method: str) -> str:
    own, parameters = vars(kind)[method], []
    for p in inspect.signature(getattr(own, "__func__", own)).parameters.values():
        written = "..." if isinstance(p.default, Enum) else repr(p.default)
        parameters.append(f"{p.name}: {p.annotation}" + ("" if p.default is p.empty else f" = {written}"))
    return f"({', '.join([parameters[0].partition(':')[0], *parameters[1:]])})"


def _public(imports: Sequence[str], others: Iterable[str] = ()) -> list[str]:
    """Type checkers take an imported name of a stub for public where `__all__` has it."""
    names = [line.rpartition(" as ")[2] for line in imports if " as " in line and " as _" not in line]
    names += others
    return ["", "__all__ = [", *(f'    "{name}",' for name in sorted({*names})), "]"]


def stubs() -> dict[str, Callable[[], str]]:
    """The files and what makes their texts."""
    files = {f"{name.replace('.', '/')}/__init__.pyi": partial(package_stub, name) for name in _PACKAGES}
    return {"armillary/relay/__init__.pyi": relay_stub, **files}


def _imports() -> list[str]:
    lines = _table(relay._NAMES)
    for name, function in sorted(FUNCTIONS.items()):
        if "." not in name:
            lines.append(f"from {function.__module__} import {function.__qualname__} as {name}")
    return [*lines, *_public(lines)]


def _user_function(name: str, short: str) -> list[str]:
    if "." not in name:
        return []
    message = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(FUNCTIONS[name])))
    message = re.sub(r"\b(Expr|Call)\b", r"_\1", message).replace("Any", "typing.Any")
    doc = " ".join((inspect.getdoc(FUNCTIONS[name]) or "").split())
    return ["    @staticmethod", f"    def {short}{message}:", f'        """{doc}"""', ""]


def _operator(op: Op, short: str, is_inside: bool) -> list[str]:
    parameters = [_parameter(op, parameter) for parameter in signature(op).parameters.values()]

    doc = " ".join(op.doc.split()) or f"The operator `{op.name}`."
    lines = ["@staticmethod"] if is_inside else []
    lines += [f"def {short}({', '.join(parameters)}) -> _Call:", f'    """{doc}"""', ""]
    return [f"    {line}".rstrip() for line in lines] if is_inside else lines


def _parameter(op: Op, parameter: inspect.Parameter) -> str:
    name = parameter.name
    if name in {n.lstrip("*") for n in op.inputs}:
        return f"{name}: {'_Operands' if f'*{name}' in op.inputs else '_Operand'}"
    message = parameter.annotation
    kind = message if isinstance(message, str) else inspect.formatannotation(message)
    shown = kind if _PLAIN.fullmatch(kind) else _KINDS.get(kind, "Sequence[typing.Any]")
    if parameter.default is inspect.Parameter.empty:
        return f"{name}: {shown}"
    shown += " | None" if parameter.default is None and "None" not in shown else ""
    return f"{name}: {shown} = {_default(parameter.default)}"


def _default(value: object) -> str:
    message = repr(value)
    return (
        message if re.fullmatch(r"[-\w.'() ,]+", message) and "inf" not in message and "nan" not in message else "..."
    )


def _space(name: str, lines: list[str]) -> str:
    kind = f"_{name.title().replace('.', '')}"
    own = ["    op: _Qnn", "    def __getattr__(self, name: str) -> typing.Any: ..."] if name == "qnn" else []
    return "\n".join([f"class {kind}:", f'    """Operators `{name}.*`."""', "", *own, *lines, "", f"{name}: {kind}"])
