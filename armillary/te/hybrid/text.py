"""Hybrid scripts that are texts: what a file may hold, and the function that it defines.

In: the text of a module. Out: its first function, defined in a scope of its own. Invariant: reading runs nothing of the
text: only the definition is taken, without decorators, defaults and annotations, and only if each node of its body is
one of the language's (`parser.py`); it sees no names but the language's.
"""

from __future__ import annotations

import ast
from types import FunctionType

from armillary.errors import TypeMismatch
from armillary.te.hybrid.runtime import HYBRID_GLOBALS

_BUILTINS = {f.__name__: f for f in (float, int, len, max, min, range)}
_ATTRIBUTES = ("dtype", "shape")
_LANGUAGE = (
    *(ast.Expr, ast.Pass, ast.Assign, ast.AugAssign, ast.For, ast.If, ast.Assert, ast.Return),
    *(ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Subscript, ast.Attribute, ast.Call, ast.keyword),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context),
)


def defined(text: str) -> FunctionType:
    """The first function of a text; TypeMismatch, with the line, where it holds anything but the language."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise TypeMismatch(f"te.hybrid: the text is no Python: {error}") from error
    tree = next((item for item in statements if isinstance(item, ast.FunctionDef)), None)
    if tree is None:
        raise TypeMismatch("te.hybrid: the text holds no function")
    for node in (inner for item in tree.body for inner in ast.walk(item)):
        reason = _refusal(node)
        if reason:
            place = f"te.hybrid: {tree.name}, line {getattr(node, 'lineno', tree.lineno)}"
            raise TypeMismatch(f"{place}: {reason} is not part of the language", hint="see te.hybrid")
    names = ast.arguments([], [ast.arg(a.arg) for a in tree.args.args], None, [], [], None, [])
    plain = ast.copy_location(ast.FunctionDef(tree.name, names, tree.body, []), tree)
    scope: dict[str, object] = {**HYBRID_GLOBALS, "__builtins__": _BUILTINS}
    exec(compile(ast.fix_missing_locations(ast.Module([plain], [])), f"<hybrid {tree.name}>", "exec"), scope)
    function = scope[tree.name]
    assert isinstance(function, FunctionType), "a definition makes a function"
    return function


def _refusal(node: ast.AST) -> str:
    """What of a node is not the language's; "" if it is."""
    match node:
        case ast.Call(ast.Name(name)) if name not in HYBRID_GLOBALS and name not in _BUILTINS:
            return f"a call of {name}"
        case ast.Call(ast.Name()):
            return ""
        case ast.Call(callee):
            return f"a call of {ast.unparse(callee):.60}"
        case ast.Attribute(_, name) if name not in _ATTRIBUTES:
            return f"attribute {name}"
        case ast.Name(name) if name.startswith("__"):
            return f"name {name}"
    return "" if isinstance(node, _LANGUAGE) else type(node).__name__
