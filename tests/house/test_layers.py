"""Imports point down, by the table in docs/architecture.md, which is parsed here: there is no second copy."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sources import FILES, PACKAGE, ROOT, module_name, nodes, tree, where

_ROW = re.compile(r"^\| (\d+) \| (.+) \|$")
_APART = "runtime"
_BY_NAME = re.compile(r"armillary(\.\w+)+(:\w+)?")  # "module" or "module:attribute", which base/lazy.py resolves late
_UPWARD = {
    "relay.build_module",  # who names a module above itself, or defers its import; `__init__` files may
    "relay.names",
    "relay.offload_tables",
    "target.kinds.c",
    "target.kinds.llvm",
    "target.kinds.opencl",
    "transform",
}
_ASK_THE_RUNTIME = {"relay.op.contrib.arm_compute_lib", "relay.op.contrib.clml"}  # whether it can run a library
_EXPECTED = {"armillary.autotvm.measure.rpc_runner"}  # named by `armc tune --rpc-key`; comes with its runner
_MOST_FILES = 25  # of a folder
_SLOTS = PACKAGE / "base" / "slots.py"
_MOST_SLOTS = 37


def layer_table() -> dict[str, int]:
    """Package (below armillary) -> row, from the table in the document."""
    rows: dict[str, int] = {}
    for line in (ROOT / "docs" / "architecture.md").read_text("utf-8").splitlines():
        match = _ROW.match(line)
        if match:
            for name in re.findall(r"`([\w.]+)`", match[2]):
                rows[name] = int(match[1])
    return rows


def row_of(module: str, table: dict[str, int]) -> int | None:
    """The row of the longest listed prefix of a module name (armillary.relay.transform.x -> relay.transform)."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        found = table.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


@functools.cache
def imports(file: Path) -> list[tuple[ast.stmt, str]]:
    """(statement, imported armillary module) for each import, wherever it stands; TYPE_CHECKING blocks excepted."""
    return list(_imports(file))


def _imports(file: Path) -> Iterator[tuple[ast.stmt, str]]:
    typing_only = {id(inner) for node in nodes(file) if _is_typing_block(node) for inner in ast.walk(node)}
    for node in nodes(file):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names if alias.name.split(".")[0] == "armillary")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "armillary":
            for alias in node.names:
                inner = ROOT / Path(*node.module.split("."), alias.name)
                is_module = _is_module(inner)
                yield node, f"{node.module}.{alias.name}" if is_module else node.module


@functools.cache
def _is_module(place: Path) -> bool:
    return place.with_suffix(".py").exists() or place.is_dir()


@functools.cache
def deferred(file: Path) -> frozenset[ast.AST]:
    """The import statements that stand under `with deferred():` (base/lazy.py)."""
    blocks = (n for n in nodes(file) if isinstance(n, ast.With) and "deferred()" in ast.unparse(n.items[0]))
    return frozenset(inner for block in blocks for inner in ast.walk(block))


def _is_typing_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_the_table_is_found_and_every_package_has_a_row() -> None:
    table = layer_table()
    assert {"errors", "tir", "relay", "ops", "driver", "cli"} <= set(table)
    homeless = {module_name(f) for f in FILES if row_of(module_name(f), table) is None}
    homeless = {m for m in homeless if m != "armillary" and m.split(".")[1] != _APART}
    assert not homeless, f"no row in docs/architecture.md for {sorted(homeless)}"


def test_every_package_of_the_table_is_there() -> None:
    places = {name: PACKAGE.joinpath(*name.split(".")) for name in layer_table()}
    assert not [name for name, place in places.items() if not _is_module(place)]


def test_imports_point_down() -> None:
    table = layer_table()
    wrong = []
    for file in FILES:
        here = module_name(file)
        row = row_of(here, table)
        for node, name in imports(file):
            other = row_of(name, table)
            is_named = node in deferred(file) and (file.name == "__init__.py" or here.partition(".")[2] in _UPWARD)
            if row is not None and other is not None and other > row and not is_named:
                wrong.append(f"{where(file, node)}: {here} (row {row}) imports {name} (row {other})")
    assert not wrong, "\n".join(wrong)


def test_runtime_imports_rows_0_and_1_only() -> None:
    table = layer_table()
    wrong = []
    for file in FILES:
        if module_name(file).split(".")[1:2] != [_APART]:
            continue
        for node, name in imports(file):
            row = row_of(name, table)
            if row is not None and row > 1:
                wrong.append(f"{where(file, node)}: imports {name} (row {row})")
    assert not wrong, "\n".join(wrong)


def test_rpc_imports_the_runtime_and_rows_0_and_1_only() -> None:
    table = layer_table()
    wrong = [
        f"{where(file, node)}: imports {name}"
        for file in FILES
        if module_name(file).split(".")[1:2] == ["rpc"]
        for node, name in imports(file)
        if (row_of(name, table) or 0) > 1 and name.split(".")[1:2] != ["rpc"]
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_in_rows_2_to_7_imports_the_runtime() -> None:
    table = layer_table()
    wrong = [
        f"{where(file, node)}: imports {name}"
        for file in FILES
        if 2 <= (row_of(module_name(file), table) or 0) <= 7
        for node, name in imports(file)
        if name.split(".")[1:2] == [_APART]
        and not (node in deferred(file) and module_name(file).partition(".")[2] in _ASK_THE_RUNTIME)
    ]
    assert not wrong, "\n".join(wrong)


def test_our_modules_are_not_imported_inside_functions() -> None:
    wrong = []
    for file in FILES:
        for function in nodes(file):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                wrong += [f"{where(file, node)}: {n}" for n in names if n.split(".")[0] in ("armillary", "")]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_modules_that_are_imported_late_by_name_exist_and_lie_below() -> None:
    table, wrong, upward = layer_table(), [], set()
    for file in FILES:
        here = module_name(file)
        row = row_of(here, table)
        for node in nodes(file):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if not _BY_NAME.fullmatch(node.value):
                continue
            name = node.value.partition(":")[0]
            if name not in _EXPECTED and not _is_module(ROOT / Path(*name.split("."))):
                wrong.append(f"{where(file, node)}: there is no {name}")
            other = row_of(name, table)
            if file.name != "__init__.py" and row is not None and other is not None and other > row:
                upward.add(here.partition(".")[2])
        found = ((row_of(name, table), node) for node, name in imports(file) if node in deferred(file))
        if file.name != "__init__.py" and row is not None and any(o is not None and o > row for o, _ in found):
            upward.add(here.partition(".")[2])
    assert not wrong, "\n".join(wrong)
    assert upward == _UPWARD, "the list of who names a module above itself has changed"


def test_folders_stay_small_and_say_what_is_in_them() -> None:
    sources = [file for file in PACKAGE.rglob("*.*") if file.suffix in (".py", ".c", ".h", ".cpp", ".hpp")]
    sizes = Counter(file.parent.relative_to(PACKAGE).as_posix() for file in sources)
    assert not {name: n for name, n in sizes.items() if n > _MOST_FILES}
    folders = {file.parent for file in FILES}
    mute = [str(f.relative_to(ROOT)) for f in folders if not ast.get_docstring(tree(f / "__init__.py"))]
    assert not mute, f"no docstring in __init__.py of {mute}"


_FORMATS = re.compile(r"onnx|protobuf|tflite", re.IGNORECASE)


def test_operators_know_no_model_format() -> None:
    wrong = []
    for file in FILES:
        if file.relative_to(PACKAGE).parts[0] != "ops":
            continue
        names = (n for n in nodes(file) if isinstance(n, ast.Name | ast.Attribute | ast.FunctionDef))
        used = {(n, getattr(n, "id", None) or getattr(n, "attr", None) or getattr(n, "name", "")) for n in names}
        wrong += [f"{where(file, node)}: {name}" for node, name in used if _FORMATS.search(name)]
        wrong += [f"{where(file, node)}: {name}" for node, name in imports(file) if ".frontend" in name]
    assert not wrong, "\n".join(wrong)


def _circles(reads: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that reach one another (Tarjan, "Depth-first search and linear graph algorithms", 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    result: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(reads[module]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            result.append(set(stack[at:]))
            del stack[at:]

    for module in sorted(reads):
        if module not in number:
            visit(module)
    return [circle for circle in result if len(circle) > 1]


def test_imports_run_in_no_circle_with_deferred_ones_counted() -> None:
    modules = {module_name(file): file for file in FILES}
    reads: dict[str, set[str]] = {}
    for module, file in modules.items():
        named = (_owner(name, modules) for _, name in imports(file))
        reads[module] = {name for name in named if name and name != module}
    circles = [f"circle of {len(circle)}: {', '.join(sorted(circle))}" for circle in _circles(reads)]
    assert not circles, "\n".join(circles)


def test_every_slot_is_filled_once_and_by_the_wiring_alone() -> None:
    declared = [n.target.id for n in nodes(_SLOTS) if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    filled = [
        (module_name(file), ast.unparse(node.func.value))
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fill"
        if ast.unparse(node.func.value).startswith("slots.")
    ]
    assert sorted(filled) == sorted(("armillary.wiring", f"slots.{name}") for name in declared)
    assert len(declared) <= _MOST_SLOTS, "a function that a value calls from above is an exception: the number falls"


def _owner(name: str, modules: dict[str, Path]) -> str:
    """The module that an imported name belongs to."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
