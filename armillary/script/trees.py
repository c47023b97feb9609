"""The sources of functions of Python, and the names around them.

In: a function. Out: its syntax tree, and what its free names stand for, and their attributes. Invariant: the function
is read, not run; what it names are values of the program around it, which it may call (a text may not: `source.py`).
"""

from __future__ import annotations

import ast
import builtins
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
    result = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(result, ast.FunctionDef):
        raise ParseError(f"{function!r} is no function of a script")
    ast.increment_lineno(result, first - 1)
    return result


def names_around(function: Callable[..., object]) -> dict[str, object]:
    """What the free names of a function stand for."""
    around = {**vars(builtins), **getattr(function, "__globals__", {})}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # assigned later
            continue
    return around


def attribute_of(owner: object, name: str) -> object:
    """`owner.name` in a function of the program itself."""
    if name.startswith("_"):
        raise ParseError(f"{name} is no public name", hint="give the value a name outside of the script")
    return getattr(owner, name)
