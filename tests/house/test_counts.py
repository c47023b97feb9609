"""Counts that may only fall: what stands apart from where it belongs, types that say nothing, formatting by hand.

In: the sources. Out: a failure where a count is above its bound. Invariant: a bound is never raised; who brings a count
down lowers its bound. A new file of operators or a back end is not counted; a table of their names elsewhere is.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from sources import FILES, PACKAGE, nodes

LITERALS = {"relay.transform": 168, "elsewhere": 93}  # names of operators outside ops, back ends and importers
ANY = 625
FMT_SKIP = 0
CPU_FACTS = 2  # files of languages and operators that import what is known of a CPU: products of bytes of ops/qnn
LATE = {"LateModule": 0, "late": 0, "find": 2}  # imports that only text tells: tables of façades, of libraries


def _parts(file: Path) -> tuple[str, ...]:
    return file.relative_to(PACKAGE).parts


def _operator_names() -> frozenset[str]:
    lines = (PACKAGE / "relay" / "operators.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines for word in line.split()[1:] if ":" not in word)


def _docstrings(file: Path) -> set[int]:
    scopes = (n for n in nodes(file) if isinstance(n, ast.Module | ast.FunctionDef | ast.ClassDef))
    return {id(n.body[0].value) for n in scopes if n.body and isinstance(n.body[0], ast.Expr)}


def literals() -> Counter[str]:
    """How often files outside of `ops`, back ends, importers and libraries name an operator by a string."""
    names, found = _operator_names(), Counter[str]()
    for file in FILES:
        place = _parts(file)
        if place[0] not in ("relay", "driver", "cli", "autotvm", "compute"):
            continue  # `tir` and `codegen` have instructions of the same names
        skip = _docstrings(file)
        values = (n for n in nodes(file) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        count = sum(n.value in names and id(n) not in skip for n in values)
        found["relay.transform" if place[:2] == ("relay", "transform") else "elsewhere"] += count
    return found


def calls(*names: str) -> int:
    """Calls of functions of these names."""
    return sum(isinstance(n, ast.Call) and getattr(n.func, "id", "") in names for file in FILES for n in nodes(file))


def _holds(what: str, count: int, bound: int) -> None:
    assert count <= bound, f"{what}: {count}, at most {bound}"


@pytest.mark.parametrize("place", LITERALS)
def test_names_of_operators_stand_with_the_operators(place: str) -> None:
    _holds(f"literals in {place}", literals()[place], LITERALS[place])


def test_languages_and_operators_know_no_processor() -> None:
    places = {"ops", "relay", "te", "tir", "arith"}
    files = (file for file in FILES if _parts(file)[0] in places)
    imports = (n for file in files for n in nodes(file) if isinstance(n, ast.ImportFrom))
    count = sum(
        n.module == "armillary.target.cpu" or (n.module or "").startswith("armillary.backends.cpu") for n in imports
    )
    _holds("imports of CPU facts", count, CPU_FACTS)


def test_types_say_something() -> None:
    count = sum(isinstance(n, ast.Name) and n.id == "Any" for file in FILES for n in nodes(file))
    _holds("Any", count, ANY)


def test_the_formatter_formats() -> None:
    _holds("fmt: skip", sum(file.read_text("utf-8").count("fmt: skip") for file in FILES), FMT_SKIP)


@pytest.mark.parametrize("kind", LATE)
def test_imports_are_seen(kind: str) -> None:
    _holds(kind, calls(kind), LATE[kind])
