"""Scripts that are texts: `script.from_source(text)`.

In: a text of one decorated function or class. Out: the function or module.
Invariant: the source is read, not run; names mean what they mean where it stands.
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
from armillary.tir.stmt import PrimFunc


@boundary("script.from_source", arguments=True)
def from_source(source: str, extra_vars: Mapping[str, object] | None = None) -> PrimFunc | IRModule:
    """What a text of a decorated function or class parses to; T, I, tir and ir are known in it."""
    names: dict[str, object] = {"T": tir, "I": ir, "tir": tir, "ir": ir, **(extra_vars or {})}
    try:
        body = ast.parse(textwrap.dedent(source)).body
    except SyntaxError as error:
        raise ParseError(f"script: {error.msg}, line {error.lineno}") from None
    found = [item for item in body if isinstance(item, ast.FunctionDef | ast.ClassDef)]
    if len(found) != 1:
        raise ParseError(f"script: {len(found)} functions and classes, wanted one", hint="put functions into a class")
    only = found[0]
    if isinstance(only, ast.FunctionDef):
        return parse_function(only, names, {}, private=_is_private(only))
    return ir.of_functions(
        {
            f.name: parse_function(f, names, {}, private=_is_private(f))
            for f in only.body
            if isinstance(f, ast.FunctionDef)
        }
    )


parse = from_source


def _is_private(tree: ast.FunctionDef) -> bool:
    """Whether the decorator says `private=True`: the function has no global symbol of its own."""
    calls = [d for d in tree.decorator_list if isinstance(d, ast.Call)]
    return any(k.arg == "private" and ast.unparse(k.value) == "True" for c in calls for k in c.keywords)
