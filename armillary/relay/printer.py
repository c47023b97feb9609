"""The text form of the graph language.

In: a function of a module, or any expression. Out: text that parses back (with meta data shown), for example

    def @main(%x: Tensor[(1, 3), float32]) -> Tensor[(1, 3), float32] {
      %0 = add(%x, meta[relay.Constant][0]);
      nn.softmax(%0, axis=1)
    }

Invariant: deterministic; one line per computing node, numbered in post order, so sharing shows; attributes equal to
their default are left out; constants other than scalars go to a `#[metadata]` section after the function. The walk is
iterative: scopes (bodies, branches) are printed deepest first. The other direction: `relay/parser.py`.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from armillary.base import slots
from armillary.base.aliases import Array
from armillary.base.dtype import dtype_of
from armillary.base.extent import Extent
from armillary.base.json_types import JsonObject
from armillary.base.lazy import deferred
from armillary.base.node import Visits
from armillary.errors import TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.walk import Scope, children, is_leaf, not_primitive, opens_scope, post_order, scopes
from armillary.text.extent import declared

with deferred():
    from armillary.relay import adt  # nodes of data types, which few programs have

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.:][A-Za-z0-9_]+)*\Z")
_FIELD = re.compile(r".*\.\d+\Z")
_SUFFIX = {"float32": "f", "float64": "f64", "float16": "f16", "int32": ""} | {
    name: name[0] + name.lstrip("uint") for name in ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64")
}


def astext(item: object, show_meta_data: bool = True, show_types: bool = False) -> str:
    """The text of a module, function or expression; `show_types` adds each line's type as a comment."""
    if isinstance(item, IRModule):
        return item.astext(show_meta_data)
    if not isinstance(item, Expr):
        raise TypeMismatch(f"expected a relay expression, got {type(item).__name__}")
    printer = _Printer(item, show_meta_data, show_types)
    return printer.free_variables() + "\n".join(printer.top()) + "\n" + printer.meta_section()


def print_function(name: str, function: Function, show_meta_data: bool = True) -> str:
    """The text of one function of a module."""
    printer = _Printer(function, show_meta_data, False)
    lines = flat_lines(printer.function(function, f"def {global_name(name)}"))
    return "\n".join(lines) + "\n" + printer.meta_section()


def global_name(name: str) -> str:
    """A global's name as text."""
    return f"@{name}" if _PLAIN_NAME.match(name) else f"@{json.dumps(name)}"


Lines = list[Any]  # Any: a line, or the Lines of an inner block, two columns further right


def flat_lines(lines: Lines) -> list[str]:
    """The lines with their indentation."""
    result: list[str] = []
    stack: list[tuple[Iterator[Any], str]] = [(iter(lines), "")]
    while stack:
        rest, margin = stack[-1]
        line = next(rest, None)
        if line is None:
            stack.pop()
        elif isinstance(line, str):
            result.append(margin + line)
        else:
            stack.append((iter(line), margin + "  "))
    return result


class _Printer:
    def __init__(self, root: Expr, show_meta_data: bool, show_types: bool) -> None:
        self.root, self.show_meta_data, self.show_types = root, show_meta_data, show_types
        self.names: dict[int, str] = {}
        self.used: set[str] = set()
        self.numbers: dict[str, int] = {}  # the last number given to each name
        self.constants: dict[int, int] = {}
        self.arrays: list[Array] = []
        self.order = post_order(root)
        self.scope_of, self.inner = scopes(root)
        self.lets = {id(e.var): e for e in self.order if isinstance(e, Let)}
        kernels = (e for e in self.order if isinstance(e, Function) and not not_primitive(e))
        self.closed = {id(p) for e in kernels for p in e.params}  # their names may repeat: nothing is captured
        self.bucket: dict[int, list[Expr]] = {}
        self._fill_buckets()
        self.text: dict[int, Lines] = {}
        for scope in self._scopes_deepest_first():
            self.text[id(scope)] = self._block(scope)

    def _fill_buckets(self) -> None:
        roots = {id(s.root): s for s in self._all_scopes()}
        count = 0
        for expr in self.order:
            scope = self.scope_of.get(id(expr))
            if is_leaf(expr):
                if isinstance(expr, Var):
                    self._name_variable(expr)
                if id(expr) in self.lets and scope is not None:
                    self.bucket.setdefault(id(scope), []).append(expr)
                continue
            if scope is None or self._is_inline(expr) or self._continues(expr):
                continue
            if roots.get(id(expr)) is scope:
                continue
            self.bucket.setdefault(id(scope), []).append(expr)
            self.names[id(expr)] = f"%{count}"
            count += 1

    def _all_scopes(self) -> Iterator[Scope]:
        yield self.scope_of[id(self.root)]
        yield from self.inner.values()

    def _scopes_deepest_first(self) -> list[Scope]:
        unique = {id(s): s for s in self._all_scopes()}
        return sorted(unique.values(), key=lambda s: -s.depth)

    def _continues(self, expr: Expr) -> bool:
        """A let whose body is the rest of its own scope prints as lines, not as a value."""
        return isinstance(expr, Let) and self.inner[id(expr), 2] is self.scope_of[id(expr)]

    def _is_inline(self, expr: Expr) -> bool:
        if type(expr) not in _VALUES:
            return isinstance(expr, GlobalVar | adt.Constructor | adt.Clause)
        return isinstance(expr, TupleGetItem) and not isinstance(expr.tuple_value, TupleGetItem)

    def _name_variable(self, var: Var) -> None:
        name, number = var.name_hint, self.numbers.get(var.name_hint, 0)
        while name in self.used and id(var) not in self.closed:
            number += 1
            name = f"{var.name_hint}_{number}"
        self.numbers[var.name_hint] = number
        if id(var) not in self.closed:
            self.used.add(name)
        plain = _PLAIN_NAME.match(name) and not _FIELD.match(name)
        self.names[id(var)] = f"%{name}" if plain else f"%{json.dumps(name)}"

    # --- lines ------------------------------------------------------------------------------------------------------

    def top(self) -> list[str]:
        return flat_lines(self.text[id(self.scope_of[id(self.root)])])

    def _block(self, scope: Scope) -> Lines:
        lines: Lines = []
        for expr in self.bucket.get(id(scope), ()):
            if isinstance(expr, Var):
                opening = f"let {self.declared(expr)} = "
                value = [self.operand(self.lets[id(expr)].value)]
            else:
                opening, value = f"{self.names[id(expr)]} = ", self.value(expr)
            lines += [opening + value[0], *value[1:]]
            lines[-1] += ";" + self._comment(expr)
        root = scope.root
        at_home = self.scope_of.get(id(root)) is scope and not is_leaf(root) and id(root) not in self.names
        return lines + (self.value(root) if at_home else [self.operand(root)])

    def _comment(self, expr: Expr) -> str:
        return f" /* {expr.checked_type} */" if self.show_types else ""

    def operand(self, expr: Expr) -> str:
        """An expression where it is used."""
        if isinstance(expr, Constant):
            return self.constant(expr)
        if id(expr) in self.names:
            return self.names[id(expr)]
        if isinstance(expr, TupleGetItem):
            return f"{self.operand(expr.tuple_value)}.{expr.index}"
        if isinstance(expr, GlobalVar):
            return global_name(expr.name_hint)
        if isinstance(expr, Op):
            return expr.name
        return expr.label if isinstance(expr, adt.Constructor) else "?"

    def value(self, expr: Expr) -> Lines:
        """The lines of an expression where it is computed."""
        visit = _VALUES.get(type(expr))
        return visit(self, expr) if visit is not None else slots.lines_of(self, expr)

    def call(self, expr: Call) -> Lines:
        op = expr.op
        if isinstance(op, Op):
            callee, attrs = op.name, attribute_text(expr.attrs)
        elif isinstance(op, GlobalVar):
            callee, attrs = global_name(op.name_hint), []
        else:
            callee, attrs = self.operand(op), []
        return [f"{callee}({', '.join([*map(self.operand, expr.args), *attrs])})"]

    def tuple(self, expr: Tuple) -> Lines:
        inside = ", ".join(map(self.operand, expr.fields))
        return [f"({inside},)" if len(expr.fields) == 1 else f"({inside})"]

    def item(self, expr: TupleGetItem) -> Lines:
        return [f"{self.operand(expr.tuple_value)}.{expr.index}"]

    def branch(self, expr: If) -> Lines:
        yes, no = self._indented(expr, 1), self._indented(expr, 2)
        return [f"if ({self.operand(expr.cond)}) {{", *yes, "} else {", *no, "}"]

    def loop(self, expr: Loop) -> Lines:
        args = ", ".join(map(self.operand, (expr.body, expr.limit, expr.going, *expr.args)))
        return [f"loop({args}, states={expr.states}, trips={expr.trips})"]

    def let(self, expr: Let) -> Lines:
        if self._continues(expr):
            return [self.operand(expr.body)]
        return ["{", *self._indented(expr, 2), "}"]

    def literal(self, expr: Function) -> Lines:
        return self.function(expr, "fn ")

    def function(self, function: Function, opening: str) -> Lines:
        params = [self.declared(p) for p in function.params]
        params += [f"{_key(key)}={literal_text(value)}" for key, value in function.attrs]
        params += [where] if (where := _where(function)) else []
        result = f" -> {function.ret_type}" if function.ret_type is not None else ""
        variables = f"[{', '.join(map(str, function.type_params))}]" if function.type_params else ""
        opening = opening.rstrip() + variables if variables else opening
        return [f"{opening}({', '.join(params)}){result} {{", *self._indented(function, 0), "}"]

    def _indented(self, expr: Expr, branch: int) -> Lines:
        return [self.text[id(self.inner[id(expr), branch])]]

    def declared(self, var: Var) -> str:
        """A variable with its type, where it is bound."""
        name = self.names.get(id(var), "%?") + (f" {{{where}}}" if (where := _where(var)) else "")
        return name if var.type_annotation is None else f"{name}: {var.type_annotation}"

    # --- constants --------------------------------------------------------------------------------------------------

    def constant(self, expr: Constant) -> str:
        inline = scalar_text(expr.data)
        if inline is not None:
            return inline
        index = self.constants.get(id(expr))
        if index is None:
            index = self.constants[id(expr)] = len(self.arrays)
            self.arrays.append(expr.data)
        note = "" if self.show_meta_data else f" /* {expr.checked_type} */"
        return f"meta[relay.Constant][{index}]{note}"

    def meta_section(self) -> str:
        """The constants, as one line of JSON each."""
        if not self.arrays or not self.show_meta_data:
            return ""
        rows = ",\n  ".join(json.dumps(array_record(a)) for a in self.arrays)
        return f'#[metadata]\n{{"relay.Constant": [\n  {rows}\n]}}\n'

    def free_variables(self) -> str:
        bound = {id(p) for e in self.order if isinstance(e, Function) for p in e.params} | set(self.lets)
        bound |= {id(v) for e in self.order if opens_scope(e) for v in children(e)[:-1]}
        free = [e for e in self.order if isinstance(e, Var) and id(e) not in bound]
        return "".join(f"free_var {self.declared(v)};\n" for v in free)


_VALUES: Visits[_Printer, [], list[str]] = {
    Call: _Printer.call,
    Tuple: _Printer.tuple,
    TupleGetItem: _Printer.item,
    If: _Printer.branch,
    Loop: _Printer.loop,
    Let: _Printer.let,
    Function: _Printer.literal,
    Op: lambda _, op: [op.name],
}


# --- values ---------------------------------------------------------------------------------------------------------


def array_record(array: Array) -> JsonObject:
    """dtype, shape and base64 bytes (C order, little endian) of an array."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"dtype": str(dtype_of(array)), "shape": list(array.shape), "data": data}


def scalar_text(array: Array) -> str | None:
    """`2f`, `1i64`, `True`; None for what is no plain finite scalar."""
    if array.shape != ():
        return None
    name = str(dtype_of(array))
    if name == "bool":
        return str(bool(array))
    if name not in _SUFFIX or (array.dtype.kind == "f" and not np.isfinite(array)):
        return None
    if array.dtype.kind == "f":
        text = str(array.dtype.type(array))
        return text.removesuffix(".0") + _SUFFIX[name]
    return f"{int(array)}{_SUFFIX[name]}"


def attribute_text(attrs: Any) -> list[str]:
    """`name=value` of each attribute that differs from its default."""
    if attrs is None:
        return []
    always: tuple[str, ...] = getattr(attrs, "_written", ())  # what a reader looks for
    return [
        f"{f.name}={literal_text(getattr(attrs, f.name))}"
        for f in dataclasses.fields(attrs)
        if f.name in always or not is_default(f, getattr(attrs, f.name))
    ]


def is_default(field: dataclasses.Field[object], value: object) -> bool:
    """Whether an attribute has its default value (a bool is not an int here)."""
    if field.default is not dataclasses.MISSING:
        return type(field.default) is type(value) and bool(field.default == value)
    if field.default_factory is not dataclasses.MISSING:
        return bool(field.default_factory() == value)
    return False


def literal_text(value: object) -> str:
    """An attribute value: numbers, extents, strings, True, False, None and sequences of those."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return json.dumps(str.__str__(value), ensure_ascii=False)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value)) if math.isfinite(value) else str(float(value))
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(literal_text, value)) + "]"
    if isinstance(value, Extent):
        return declared(value)
    return json.dumps(str(value), ensure_ascii=False)


def _where(expr: Expr) -> str:
    """Where the value of a variable, or a function's result, is; nothing where nothing is said."""
    device = expr.virtual_device_
    if device.is_open:
        return ""
    return f"virtual_device={literal_text((device.device_type, *device.place))}"


def _key(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else json.dumps(name)
