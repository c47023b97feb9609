"""The sources of functions of Python, and the names around them.

In: a function. Out: its syntax tree, and what its free names stand for. Invariant: the function is read, not run.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable

from armillary.errors import ParseError


def tree_of(function: Callable[..., object]) -> ast.FunctionDef:
    """The syntax tree of a function."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise ParseError(
            f"the source of {function!r} is not at hand: {error}", hint="script.from_source(text)"
        ) from None
    found = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(found, ast.FunctionDef):
        raise ParseError(f"{function!r} is no function of a script")
    ast.increment_lineno(found, first - 1)
    return found


def names_around(function: Callable[..., object]) -> dict[str, object]:
    """What the free names of a function stand for."""
    around = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # assigned later
            continue
    return around
