"""The package's source files, parsed once for all house tests.

In: the repository. Out: `FILES`, module names, syntax trees. Invariant: read-only.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "armillary"
FILES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def tree(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text("utf-8"), str(file))


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Every node of that tree, as `ast.walk` gives them: many rules look at all of them."""
    return tuple(ast.walk(tree(file)))


def module_name(file: Path) -> str:
    """Dotted name: armillary.relay for relay/__init__.py."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def where(file: Path, node: ast.AST) -> str:
    """File and line, for messages."""
    return f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
