"""Scripts that are texts: `script.from_source(text)`.

In: a text of one decorated function or class. Out: the function or module. Invariant: the source is read, not run. A
text can name the words of `T`, numbers' and lists' own functions, and what `extra_vars` gives it by name; of values it
reaches the few attributes that a table here has. So it calls what makes nodes, and what its reader handed to it.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping

from armillary.base.boundary import boundary
from armillary.errors import ParseError
from armillary.ir import IRModule
from armillary.script import ir, tir
from armillary.script.parser import parse_function
from armillary.script.terms import Meta, TypeName
from armillary.tir.blocks.block import BufferRegion
from armillary.tir.expr import Expr, IterVar, Range
from armillary.tir.stmt import Buffer, PrimFunc

_BUILTINS = {f.__name__: f for f in (abs, bool, float, int, len, list, max, min, slice, sum, tuple)}
_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    Buffer: (
        *("access_ptr", "align", "data", "dtype", "elem_offset", "name", "offset_of", "scope", "shape", "strides"),
        *("vload", "vstore"),
    ),
    BufferRegion: ("buffer", "region"),
    IterVar: ("dom", "dtype", "var"),
    Expr: ("astype", "dtype"),
    Range: ("extent", "min"),
    Meta: ("value",),
    TypeName: ("dtype",),
}


def reachable(owner: object, name: str) -> object:
    """`owner.name` in a text: a word of `T`, an axis, or one of the listed attributes."""
    if owner is tir:
        return tir.word(name)
    if owner is tir.axis and name in vars(tir.axis) and not name.startswith("_"):
        return getattr(owner, name)
    names = next((names for kind, names in _ATTRIBUTES.items() if isinstance(owner, kind)), ())
    if name not in names:
        shown = getattr(owner, "__name__", type(owner).__name__)
        raise ParseError(f"{shown} has no attribute {name!r} in a text", hint="pass the value itself in extra_vars")
    return getattr(owner, name)


@boundary("script.from_source", arguments=True)
def from_source(source: str, extra_vars: Mapping[str, object] | None = None) -> PrimFunc | IRModule:
    """What a text of a decorated function or class parses to; T, I, tir and ir are known in it."""
    names: dict[str, object] = {**_BUILTINS, "T": tir, "I": ir, "tir": tir, "ir": ir, **(extra_vars or {})}
    try:
        body = ast.parse(textwrap.dedent(source)).body
    except SyntaxError as error:
        raise ParseError(f"script: {error.msg}, line {error.lineno}") from None
    definitions = [item for item in body if isinstance(item, ast.FunctionDef | ast.ClassDef)]
    if len(definitions) != 1:
        raise ParseError(
            f"script: {len(definitions)} functions and classes, wanted one", hint="put functions into a class"
        )
    only = definitions[0]
    if isinstance(only, ast.FunctionDef):
        return parse_function(only, names, reachable, private=_is_private(only))
    return ir.of_functions(
        {
            f.name: parse_function(f, names, reachable, private=_is_private(f))
            for f in only.body
            if isinstance(f, ast.FunctionDef)
        }
    )


parse = from_source


def _is_private(tree: ast.FunctionDef) -> bool:
    """Whether the decorator says `private=True`: the function has no global symbol of its own."""
    calls = [d for d in tree.decorator_list if isinstance(d, ast.Call)]
    return any(k.arg == "private" and ast.unparse(k.value) == "True" for c in calls for k in c.keywords)
