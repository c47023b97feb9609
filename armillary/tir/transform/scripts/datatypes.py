"""`target.datatype`: number types of a script's own, computed by functions of C that the script names.

    target.datatype.register("posites2", 131)
    target.datatype.register_op(create_lower_func({(32, 32): "FloatToPosit32es2"}), "Cast", "llvm", "float", "posites2")
    target.datatype.register_op(create_lower_func({32: "Posit32es2Add"}), "Add", "llvm", "posites2")
    te.compute((n,), lambda i: X(i).astype("custom[posites2]32") + Y(i).astype("custom[posites2]32"))

In: rules, by operation, kind of target and type. Out: `lower_custom_datatypes`, which makes loops over unsigned
integers of the same bits (`DType.storage`), and calls of the named functions, out of loops over such types, before any
other pass of a build sees them. Invariant: nothing but storing, choosing and copying means anything without a rule: an
operation that has none is refused by its name, but for comparisons of a type with a "Max". The functions are looked up
in this process (`ctypes.CDLL(path, RTLD_GLOBAL)`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.functions import FUNCTIONS
from armillary.base.node import replace
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.intrinsics import call_pure_extern
from armillary.tir.substitute import REBUILD, map_stmt
from armillary.tir.transform.loop_pass import FIRST, prim_pass

FIRST_CODE = 129  # of a script's own type; smaller ones are those of DLPack
Rule: TypeAlias = Callable[[E.Expr], E.Expr]
Bits: TypeAlias = "int | tuple[int, int]"
_CODES: dict[str, int] = {}
_RULES: dict[tuple[str, ...], Rule] = {}  # by target, operation, and names of types: of the result for a cast, then
_OPERATIONS = (E.Add, E.Sub, E.Mul, E.Div, E.TruncMod, E.FloorMod, E.Min, E.Max, E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE)
_OWN_CALLS = {"exp_flushed": "exp"}  # intrinsics of ours, whose results are those of a script's, or zero
_ORDERS = (E.GT, E.GE, E.LT, E.LE)
_OLD_NAMES = {"TruncMod": "Mod", "FloorMod": "Mod"}


@boundary("target.datatype.register", arguments=True)
def register(type_name: str, type_code: int) -> None:
    """Name a type; dtypes of it are `custom[name]bits`. Raises ConfigError for a code below 129 or of another type."""
    if not isinstance(type_name, str) or not type_name.isidentifier():
        raise ConfigError(f"target.datatype.register: {type_name!r} is no name of a type", hint="letters and digits")
    if type_code < FIRST_CODE or any(code == type_code and name != type_name for name, code in _CODES.items()):
        taken = next((name for name, code in _CODES.items() if code == type_code), "a type of DLPack")
        raise ConfigError(f"target.datatype.register: code {type_code} is of {taken}", hint=f"take {FIRST_CODE} to 255")
    _CODES[type_name] = type_code


def get_type_code(type_name: str) -> int:
    """The code of a registered type. Raises ConfigError where there is none."""
    if type_name not in _CODES:
        known = ", ".join(_CODES) or "none"
        raise ConfigError(
            f"there is no data type {type_name!r}", hint=f"target.datatype.register names one; known: {known}"
        )
    return _CODES[type_name]


def get_type_name(type_code: int) -> str:
    """The name of a registered code. Raises ConfigError where there is none."""
    for name, code in _CODES.items():
        if code == type_code:
            return name
    raise ConfigError(f"no data type has the code {type_code}", hint="target.datatype.register names one")


def get_type_registered(type_code: int) -> bool:
    """Whether a code is a script's own type."""
    return type_code in _CODES.values()


@boundary("target.datatype.register_op", arguments=True)
def register_op(
    lower_func: Rule,
    op_name: str,
    target: str,
    src_type_name: str,
    dest_type_name: str | None = None,
    intrinsic_name: str | None = None,
) -> None:
    """Say how an operation on a type is written for a kind of target.

    `op_name` is the class of an expression: "Add", "FloatImm", "Cast" (then `dest_type_name` is the result's type),
    "Call" (then `intrinsic_name` is the function's, "tir.exp"). `lower_func(expression)` gives what stands in its
    place; the operands of the expression are lowered already: they hold the bits.
    """
    if not callable(lower_func):
        raise ConfigError(
            f"register_op of {op_name}: got {type(lower_func).__name__}, wanted a function of an expression"
        )
    if (op_name == "Cast") != (dest_type_name is not None) or (op_name == "Call") != (intrinsic_name is not None):
        raise ConfigError(
            f"register_op of {op_name} of {src_type_name}: a Cast has a dest_type_name, a Call an intrinsic_name"
        )
    _RULES[_key(target, op_name, intrinsic_name, dest_type_name, src_type_name)] = lower_func


def _key(*parts: str | None) -> tuple[str, ...]:
    return tuple(part.removeprefix("tir.") for part in parts if part is not None)


@boundary("target.datatype.register_min_func", arguments=True)
def register_min_func(func: Callable[[int], E.Expr], type_name: str) -> None:
    """Say what the least value of a type is, of so many bits: where maxima begin."""
    get_type_code(type_name)
    FUNCTIONS[f"datatype.min.custom[{type_name}]"] = func


@boundary("target.datatype.create_lower_func", arguments=True)
def create_lower_func(extern_func_map: Mapping[Bits, str]) -> Rule:
    """A rule that calls a function of C: by the bits of the type, or for casts by those of (source, result)."""

    def lower(op: E.Expr) -> E.Expr:
        is_cast = isinstance(op, E.Cast)
        key: Bits = (op.value.dtype.bits, op.dtype.bits) if is_cast else _bits(op)  # type: ignore[attr-defined]
        if key not in extern_func_map:
            raise TypeMismatch(f"create_lower_func: there is no function for {key} bits, in: {op!r}")
        if isinstance(op, E.Cast | E.FloatImm):
            args: tuple[E.ExprLike, ...] = (op.value,)
        else:
            args = op.args if isinstance(op, E.Call) else (op.a, op.b)  # type: ignore[attr-defined]
        result: E.Expr = call_pure_extern(op.dtype.storage, extern_func_map[key], *args)
        return result

    return lower


def _bits(op: E.Expr) -> int:
    """Of a comparison its operands', as its own dtype is bool."""
    return int(op.a.dtype.bits if isinstance(op, E.Binary) else op.dtype.bits)


@boundary("target.datatype.create_min_lower_func", arguments=True)
def create_min_lower_func(extern_func_map: Mapping[int, str], type_name: str) -> Callable[[int], E.Expr]:
    """A function for `register_min_func`: the least value is what a function of C gives."""

    def lower(num_bits: int) -> E.Expr:
        if num_bits not in extern_func_map:
            raise TypeMismatch(f"create_min_lower_func of {type_name}: there is no function for {num_bits} bits")
        result: E.Expr = call_pure_extern(DType(f"custom[{type_name}]{num_bits}"), extern_func_map[num_bits])
        return result

    return lower


def lower_ite(ite_op: E.Call) -> E.Expr:
    """The rule of `tir.if_then_else`: the same, over bits."""
    return E.Call(ite_op.dtype.storage, "if_then_else", ite_op.args)


def lower_call_pure_extern(op: E.Call) -> E.Expr:
    """The rule of `tir.call_pure_extern`: the function takes and gives bits."""
    return E.Call(op.dtype.storage, "call_pure_extern", op.args)


def _name(dtype: DType) -> str:
    """The name of a type in rules."""
    return dtype.code[len("custom[") : -1] if dtype.is_custom else "uint" if dtype.is_bool else dtype.code


def lower_custom_datatypes(func: S.PrimFunc, target: str = "default") -> S.PrimFunc:
    """Bits in the place of a script's own types, calls in that of operations on them.

    B[i] = A[i] + 1.0       where A, B are Buffer[(4,), custom[mine]32]
    ->
    B[i] = call_pure_extern("MineAdd", A[i], call_pure_extern("FloatToMine", 1.0))
    """
    if not _CODES:
        return func
    lowerer = _Lowerer(target)
    params = tuple(lowerer.param(p) for p in func.params)
    body = lowerer.stmt(func.body)
    return replace(func, params=params, body=body)


LowerCustomDatatypes = prim_pass("lower-custom-datatypes", "tir.LowerCustomDatatypes")(lower_custom_datatypes)
FIRST.append(lambda kind: LowerCustomDatatypes(target=kind))


class _Lowerer:
    def __init__(self, target: str) -> None:
        self.target = target
        self.buffers: dict[S.Buffer, S.Buffer] = {}
        self.variables: dict[E.Var, E.Var] = {}
        self.memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def param(self, item: S.Buffer | E.Var) -> S.Buffer | E.Var:
        return self.buffer(item) if isinstance(item, S.Buffer) else self.variable(item)

    def buffer(self, item: S.Buffer) -> S.Buffer:
        if not item.dtype.is_custom:
            return item
        return self.buffers.setdefault(item, replace(item, dtype=item.dtype.storage))

    def variable(self, item: E.Var) -> E.Var:
        if not item.dtype.is_custom:
            return item
        return self.variables.setdefault(item, E.Var(item.name, item.dtype.storage))

    def stmt(self, item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, self.expr, self.stmt)
        if isinstance(mapped, S.BufferStore | S.Allocate):
            return replace(mapped, buffer=self.buffer(mapped.buffer))
        if isinstance(mapped, S.LetStmt):
            return replace(mapped, var=self.variable(mapped.var))
        if isinstance(mapped, S.AttrStmt) and isinstance(mapped.node, S.Buffer):
            return replace(mapped, node=self.buffer(mapped.node))
        return mapped

    def expr(self, item: E.Expr) -> E.Expr:
        known = self.memo.get(id(item))
        if known is None:
            known = self.memo[id(item)] = (item, self.lowered(item))
        return known[1]

    def lowered(self, item: E.Expr) -> E.Expr:
        if isinstance(item, E.Var):
            return self.variable(item)
        if isinstance(item, E.Cast) and (item.dtype.is_custom or item.value.dtype.is_custom):
            names = (_name(item.dtype), _name(item.value.dtype))
            return self.by_rule(E.Cast(item.dtype, self.expr(item.value)), item.dtype, "Cast", *names)
        if isinstance(item, E.FloatImm) and item.dtype.is_custom:
            return self.by_rule(item, item.dtype, "FloatImm", _name(item.dtype))
        if isinstance(item, _OPERATIONS) and item.a.dtype.is_custom:
            kind = type(item)
            name = _OLD_NAMES.get(kind.__name__, kind.__name__)
            node = kind(self.expr(item.a), self.expr(item.b))
            if kind in _ORDERS and not self.rule(name, _name(item.a.dtype)):
                return self.compared(node, item.a.dtype)
            return self.by_rule(node, item.dtype, name, _name(item.a.dtype))
        if isinstance(item, E.Call) and item.dtype.is_custom:
            return self.call(E.Call(item.dtype, item.name, tuple(map(self.expr, item.args))))
        if isinstance(item, E.BufferLoad):
            return E.BufferLoad(self.buffer(item.buffer), tuple(map(self.expr, item.indices)))
        if isinstance(item, E.Select):
            return E.Select(self.expr(item.condition), self.expr(item.true_value), self.expr(item.false_value))
        return REBUILD[type(item)](item, self.expr)

    def compared(self, item: E.Expr, dtype: DType) -> E.Expr:
        """Which of two is larger, by the type's own maximum, which is one of them."""
        low, high = (item.a, item.b) if isinstance(item, E.LT | E.LE) else (item.b, item.a)  # type: ignore[attr-defined]
        is_high = E.EQ(self.by_rule(E.Max(low, high), dtype, "Max", _name(dtype)), high)
        return is_high if isinstance(item, E.GE | E.LE) else E.And(is_high, E.NE(low, high))

    def call(self, item: E.Call) -> E.Expr:
        """A call by its rule; choosing and calling functions of C mean the same of bits."""
        own = {"if_then_else": lower_ite, "call_pure_extern": lower_call_pure_extern, "call_extern": None}
        if item.name == "call_extern" or (item.name in own and not self.rule("Call", item.name, _name(item.dtype))):
            return E.Call(item.dtype.storage, item.name, item.args)
        return self.by_rule(item, item.dtype, "Call", _OWN_CALLS.get(item.name, item.name), _name(item.dtype))

    def rule(self, *names: str) -> Rule | None:
        return _RULES.get((self.target, *names))

    def by_rule(self, node: E.Expr, dtype: DType, *names: str) -> E.Expr:
        rule = self.rule(*names)
        if rule is None:
            what = f"{names[0]} of {' from '.join(names[1:])}"
            hint = f'target.datatype.register_op(…, "{names[0]}", "{self.target}", "{names[-1]}") says what it is'
            raise UnsupportedError(f"{what} has no rule for target {self.target}, in: {node!r}", hint=hint)
        return build.cast(build.convert(rule(node)), dtype.storage)
