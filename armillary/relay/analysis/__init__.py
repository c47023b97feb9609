"""Questions about graphs: variables, operators, structure, work.

In: expressions or modules. Out: lists, counts, truths, hashes. Invariant: nothing here changes anything or recurses;
`structural_hash` is the same for structurally equal graphs, on every machine and in every run, so it can name kernels
and cache entries. Type variables: relay/adt/type_variables.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Sequence

from armillary.base.boundary import boundary
from armillary.base.digest import blake2b
from armillary.base.lazy import deferred, lazy_names
from armillary.base.node import structural_equal
from armillary.errors import TypeMismatch
from armillary.ir import BaseFunc, GlobalVar, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.infer import check_module, infer_type
from armillary.relay.op import Op, is_primitive
from armillary.relay.printer import literal_text
from armillary.relay.types import tensor_fields
from armillary.relay.walk import children, is_leaf, opens_scope, post_order, scopes

with deferred():
    from armillary.relay import adt  # values of data types, which few programs have
    from armillary.relay.transform.fusion.fuse_ops import fuse_ops as _fuse_ops

__all__ = [
    "Feature",
    "all_dtypes",
    "all_vars",
    "bound_vars",
    "check_basic_block_normal_form",
    "check_constant",
    "check_module",
    "close_over",
    "count_layers",
    "count_ops",
    "detect_feature",
    "extract_fused_functions",
    "extract_intermediate_expr",
    "free_vars",
    "get_total_mac_number",
    "infer_type",
    "list_op_freqs",
    "op_frequency",
    "post_order_visit",
    "structural_equal",
    "structural_hash",
    "well_formed",
]


_TYPE_VARIABLES = ("all_type_vars", "bound_type_vars", "free_type_vars")
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{name: f"armillary.relay.adt.type_variables:{name}" for name in _TYPE_VARIABLES},
        "AnnotatedRegionSet": "armillary.relay.transform.partition._region_sets:AnnotatedRegionSet",
        "CallGraph": "armillary.relay.analysis.call_graph:CallGraph",
        "get_calibration_data": "armillary.relay.backend.calibration:get_calibration_data",
        "list_fake_quantized_op_freqs": "armillary.ops.qnn.fake_regions:list_fake_quantized_op_freqs",
    },
)


@boundary("post_order_visit", arguments=True)
def post_order_visit(expr: Expr, visit: Callable[[Expr], object]) -> None:
    """Call `visit` on every node once, children first; operators are nodes here, as Relay-era scripts expect."""
    seen: set[int] = set()
    for node in post_order(expr):
        if isinstance(node, Call) and isinstance(node.op, Op) and id(node.op) not in seen:
            seen.add(id(node.op))
            visit(node.op)
        visit(node)


@boundary("all_vars", arguments=True)
def all_vars(expr: Expr) -> list[Var]:
    """Every variable, in post order."""
    return [e for e in post_order(expr) if isinstance(e, Var)]


def bound_vars(expr: Expr) -> list[Var]:
    """Variables bound by a let or a parameter list, in post order."""
    order = post_order(expr)
    bound = {id(e.var) for e in order if isinstance(e, Let)}
    bound |= {id(p) for e in order if isinstance(e, Function) for p in e.params}
    bound |= {id(v) for e in order if opens_scope(e) for v in children(e)[:-1]}  # of a pattern
    return [e for e in order if isinstance(e, Var) and id(e) in bound]


@boundary("free_vars", arguments=True)
def free_vars(expr: Expr) -> list[Var]:
    """Variables used but not bound, in post order."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in all_vars(expr) if id(v) not in bound]


def all_dtypes(expr: Expr) -> set[str]:
    """The element types of every value in an expression."""
    values = [e for e in post_order(expr) if not isinstance(e, Function)]
    return {str(t.dtype) for e in values for t in tensor_fields(infer_type(e))}


def close_over(expr: Expr) -> Function:
    """A function of the free variables of `expr`."""
    if not isinstance(expr, Expr):
        raise TypeMismatch(f"expected a relay expression, got {type(expr).__name__}")
    return Function(tuple(free_vars(expr)), expr)


@boundary("op_frequency", arguments=True)
def op_frequency(item: Expr | IRModule) -> dict[str, int]:
    """How many calls of each operator there are, by name; functions inside are counted too."""
    counts: dict[str, int] = {}
    roots = [f for _, f in item.items() if isinstance(f, Expr)] if isinstance(item, IRModule) else [item]
    for root in roots:
        for e in post_order(root):
            if isinstance(e, Call) and isinstance(e.op, Op):
                counts[e.op.name] = counts.get(e.op.name, 0) + 1
    return dict(sorted(counts.items()))


count_ops = list_op_freqs = op_frequency


@boundary("extract_intermediate_expr", arguments=True)
def extract_intermediate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """A module of the value that a call, tuple or field computes: the one of that number in post order."""
    values = [e for e in post_order(mod["main"].body) if isinstance(e, Call | Tuple | TupleGetItem)]
    if not 0 <= expr_id < len(values):
        raise TypeMismatch(f"there is no expression {expr_id}", hint=f"main computes {len(values)} values, from 0 on")
    return IRModule.from_expr(values[expr_id])


extract_intermdeiate_expr = extract_intermediate_expr  # as the old name is spelt


def _functions(item: Expr | IRModule) -> list[Expr]:
    """The relay functions of a module, or the expression itself."""
    if isinstance(item, IRModule):
        return [f for _, f in item.items() if isinstance(f, Expr)]
    if not isinstance(item, Expr):
        raise TypeMismatch(f"expected a relay expression or a module, got {type(item).__name__}")
    return [item]


# --- truths ---------------------------------------------------------------------------------------------------------


def check_constant(expr: Expr) -> bool:
    """Whether an expression is a constant, or a tuple of constants."""
    return all(isinstance(e, Constant | Tuple) for e in post_order(expr))


def _blocks(expr: Expr) -> Sequence[Expr]:
    """The parts of an expression in the order in which `walk.scopes` numbers them."""
    match expr:
        case Function():
            return (expr.body,)
        case If():
            return (expr.cond, expr.true_branch, expr.false_branch)
        case _:
            return children(expr)


def check_basic_block_normal_form(expr: Expr) -> bool:
    """Whether every computed value is used only in the block (body or branch) that it belongs to."""
    of, inner = scopes(expr)
    for node in post_order(expr):
        for k, child in enumerate(_blocks(node) if not is_leaf(node) else ()):
            if not is_leaf(child) and not isinstance(child, Function) and of[id(child)] is not inner[id(node), k]:
                return False
    return True


def well_formed(item: Expr | IRModule, diag_ctx: object = None) -> bool:
    """Whether each variable is bound at most once, and used only where its binding is in force.

    Free variables are allowed. `diag_ctx` is accepted for old scripts.
    """
    del diag_ctx
    return all(map(_is_well_formed, _functions(item)))


def _is_well_formed(root: Expr) -> bool:
    order = post_order(root)
    binders = [v for e in order for v in _bound_here(e)]
    bound = {id(v) for v in binders}
    if len(bound) != len(binders):
        return False
    nothing: frozenset[int] = frozenset()
    open_names: dict[int, frozenset[int]] = {}  # by id: bound variables that an expression needs from around it
    for e in order:
        if isinstance(e, Var):
            open_names[id(e)] = frozenset((id(e),)) if id(e) in bound else nothing
            continue
        parts = [open_names[id(c)] for c in children(e) if id(c) in open_names]
        if isinstance(e, Let):  # a function may call itself through the variable; any other value may not
            value = open_names[id(e.value)] - ({id(e.var)} if isinstance(e.value, Function) else nothing)
            parts = [value, open_names[id(e.body)] - {id(e.var)}]
        needed = nothing.union(*parts) if len(parts) != 1 else parts[0]
        here = () if isinstance(e, Let) else _bound_here(e)
        open_names[id(e)] = needed - {id(v) for v in here} if here else needed
    return not open_names[id(root)]


def _bound_here(expr: Expr) -> Sequence[Var]:
    if opens_scope(expr):  # a clause binds what its pattern names
        return [v for v in children(expr)[:-1] if isinstance(v, Var)]
    return (expr.var,) if isinstance(expr, Let) else expr.params if isinstance(expr, Function) else ()


# The constructs of the language under Relay's names and numbers. fGraph: a computed value is used more than once;
# fLetRec: a let whose value mentions its own variable.
Feature = enum.IntEnum(
    "Feature",
    {
        "fVar": 0,
        "fGlobalVar": 1,
        "fConstant": 2,
        "fTuple": 3,
        "fTupleGetItem": 4,
        "fFunction": 5,
        "fOp": 6,
        "fCall": 7,
        "fLet": 8,
        "fIf": 9,
        "fRefCreate": 10,
        "fRefRead": 11,
        "fRefWrite": 12,
        "fConstructor": 13,
        "fMatch": 14,
        "fGraph": 15,
        "fLetRec": 16,
    },
)


def detect_feature(a: Expr | IRModule, b: Expr | IRModule | None = None) -> set[Feature]:
    """The constructs that an expression uses; of a module and an expression, those of both."""
    result: set[Feature] = set()
    for root in [*_functions(a), *(_functions(b) if b is not None else ())]:
        uses: dict[int, int] = {}
        for e in post_order(root):
            own = None if isinstance(e, Op | GlobalVar) else Feature.__members__.get(f"f{type(e).__name__}")
            result |= set() if own is None else {own}  # there is no feature of loops
            if isinstance(e, Call) and isinstance(e.op, Op | GlobalVar):
                result.add(Feature.fOp if isinstance(e.op, Op) else Feature.fGlobalVar)
            if isinstance(e, Call) and isinstance(e.op, adt.Constructor):
                result.add(Feature.fConstructor)
            if isinstance(e, Let) and any(v is e.var for v in all_vars(e.value)):
                result.add(Feature.fLetRec)
            for child in children(e):
                uses[id(child)] = uses.get(id(child), 0) + (
                    not is_leaf(child) and not isinstance(child, adt.Constructor)
                )
        result |= {Feature.fGraph} if max(uses.values(), default=0) > 1 else set()
    return result


# --- work -----------------------------------------------------------------------------------------------------------


def count_layers(expr: Expr | IRModule, valid_ops: Sequence[str]) -> int:
    """The largest number of calls of the named operators on one path through the graph."""
    if not isinstance(valid_ops, Collection):
        raise TypeMismatch(f"count_layers: got {type(valid_ops).__name__}, wanted names of operators")
    depth: dict[int, int] = {}
    roots = _functions(expr)
    for root in roots:
        for e in post_order(root):
            below = max((depth[id(c)] for c in children(e)), default=0)
            depth[id(e)] = below + (isinstance(e, Call) and isinstance(e.op, Op) and e.op.name in valid_ops)
    return max((depth[id(root)] for root in roots), default=0)


def get_total_mac_number(expr: Expr | IRModule) -> int:
    """Multiply-accumulates of all convolutions, dense layers, products and attention, as the operators define them."""
    return sum(macs for root in _functions(expr) for _, macs in mac_numbers(root))


def mac_numbers(expr: Expr) -> Iterator[tuple[Call, int]]:
    """Each contraction that states them (`Op.macs`) with its multiply-accumulates."""
    for e in post_order(expr):
        rule = e.op.macs_rule if isinstance(e, Call) and isinstance(e.op, Op) else None
        if rule is not None:
            assert isinstance(e, Call), "a rule belongs to a call"
            yield e, rule(e.attrs, [infer_type(a) for a in e.args], infer_type(e))


def extract_fused_functions(mod: IRModule) -> dict[str, Function]:
    """The kernels of a module after fusion, by the hash of their structure; equal ones once.

    A module that has none is fused first.
    """
    if not isinstance(mod, IRModule):
        raise TypeMismatch(f"extract_fused_functions: got {type(mod).__name__}, wanted an IRModule")
    if not any(is_primitive(e) for root in _functions(mod) for e in post_order(root)):
        mod = _fuse_ops(mod)
    result: dict[str, Function] = {}
    for root in _functions(mod):
        for e in post_order(root, lambda n: not is_primitive(n)):
            if isinstance(e, Function) and is_primitive(e):
                result.setdefault(str(e.get_attr("hash") or structural_hash(e)), e)
    return result


def structural_hash(expr: Expr | BaseFunc, own: Callable[[Expr, dict[int, int]], bytes] | None = None) -> str:
    """32 hex digits that depend on structure only: not on names of variables, spans or sharing.

    `own(node, numbers of variables)` gives what a node adds to its children.
    """
    own = own_digest if own is None else own
    if not callable(own):
        raise TypeMismatch(f"structural_hash: got {type(own).__name__}, wanted a function of a node and numbers")
    digests: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    order = post_order(expr) if isinstance(expr, Expr) else []
    for node in order:
        if isinstance(node, Var):
            numbers.setdefault(id(node), len(numbers))
        added = own(node, numbers)
        if not isinstance(added, bytes):
            raise TypeMismatch(f"structural_hash: own gives {type(added).__name__}, wanted bytes")
        parts = [type(node).__name__.encode(), added, *(digests[id(c)] for c in children(node))]
        digests[id(node)] = blake2b(b"\0".join(parts), digest_size=16).digest()
    return digests[id(expr)].hex() if order else blake2b(repr(expr).encode(), digest_size=16).hexdigest()


def own_digest(node: Expr, numbers: dict[int, int]) -> bytes:
    """What a node adds to its children."""
    match node:
        case Var():
            text = f"{numbers[id(node)]}:{node.type_annotation}"
        case Constant():
            header = f"{node.data.dtype.name}:{node.data.shape}:".encode()
            return header + blake2b(node.data.tobytes(), digest_size=16).digest()
        case Call():
            callee = node.op.name if isinstance(node.op, Op) else ""
            callee = f"@{node.op.name_hint}" if isinstance(node.op, GlobalVar) else callee
            text = f"{callee}:{node.attrs!r}"
        case TupleGetItem():
            text = str(node.index)
        case Function():
            text = f"{node.ret_type}:" + ",".join(f"{k}={literal_text(v)}" for k, v in node.attrs)
        case Loop():
            text = f"{node.states}:{node.trips}"
        case Tuple() | Let() | If() | _:
            text = ""
    return text.encode()
