"""The graph language, and the names users know from Relay-era scripts.

Core modules: types, expr, op (nodes), infer (types), printer and parser (text), analysis, pattern, evaluate (the
interpreter that defines meaning), layout, transform (passes). In: a name. Out: what the table below says, or the
operator of that name. Invariant: importing the package imports nothing: a script's first lines come before it reads
its model, and a small network's peak is there.
"""

from __future__ import annotations

import typing

from armillary.base.lazy import deferred, lazy_names

with deferred():
    from armillary.base.old_modules import old_name as _old_name
    from armillary.relay.names import find_operator as _find_operator
    from armillary.relay.names import is_shown as _is_shown
    from armillary.relay.names import operator_names as _operator_names

_EXPR = ("Expr", "Var", "Constant", "Tuple", "TupleGetItem", "Call", "Let", "If", "Loop", "Function", "var", "const")
_TYPES = ("Type", "TensorType", "TupleType", "FuncType")
_ADT = (
    "Clause",
    "Constructor",
    "Match",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefCreate",
    "RefRead",
    "RefWrite",
)
_ADT_TYPES = ("GlobalTypeVar", "RefType", "TypeCall", "TypeData", "TypeKind", "TypeVar")
_CORE = (
    "analysis",
    "backend",
    "expr",
    "expr_functor",
    "infer",
    "names",
    "op",
    "printer",
    "quantize",
    "scope_builder",
    "transform",
    "ty",
    "types",
    "walk",
)
_NAMES = {
    **{name: f"armillary.relay.{name}" for name in _CORE},
    **{name: f"armillary.relay.expr:{name}" for name in _EXPR},
    **{name: f"armillary.relay.types:{name}" for name in _TYPES},
    "Any": "armillary.relay.types:AnyDim",
    "GlobalVar": "armillary.ir:GlobalVar",
    "IRModule": "armillary.ir:IRModule",
    "Module": "armillary.ir:IRModule",
    "ExprFunctor": "armillary.relay.expr_functor:ExprFunctor",
    "ExprMutator": "armillary.relay.expr_functor:ExprMutator",
    "ExprVisitor": "armillary.relay.expr_functor:ExprVisitor",
    "Op": "armillary.relay.op:Op",
    "ScopeBuilder": "armillary.relay.scope_builder:ScopeBuilder",
    "TupleWrapper": "armillary.relay.expr:TupleWrapper",
    "TypeMismatch": "armillary.errors:TypeMismatch",
    **{name: f"armillary.relay.adt:{name}" for name in _ADT},
    **{name: f"armillary.relay.adt.types:{name}" for name in _ADT_TYPES},
    "IncompleteType": "armillary.relay.types:IncompleteType",
    "RelayRefType": "armillary.relay.adt.types:RefType",
    "adt": "armillary.relay.adt",
    "loops": "armillary.relay.loops",
    "prelude": "armillary.relay.prelude",
    "astext": "armillary.relay.printer:astext",
    "bind": "armillary.relay.binding:bind",
    "bind_params_by_name": "armillary.relay.binding:bind_params_by_name",
    "build": "armillary.driver.build:build",
    "build_config": "armillary.transform:PassContext",
    "build_module": "armillary.relay.build_module",
    "create_executor": "armillary.driver.executor:create_executor",
    "data_dep_optimization": "armillary.relay.data_dep_optimization",
    "dataflow_pattern": "armillary.relay.dataflow_pattern",
    "free_vars": "armillary.relay.analysis:free_vars",
    "fromtext": "armillary.relay.parser:fromtext",
    "frontend": "armillary.frontend",
    "infer_type": "armillary.relay.infer:infer_type",
    "load_param_dict": "armillary.runtime.container:load_param_dict",
    "optimize": "armillary.driver.build:optimize",
    "param_dict": "armillary.relay.param_dict",
    "parse": "armillary.relay.parser:parse",
    "parse_expr": "armillary.relay.parser:parse_expr",
    "save_param_dict": "armillary.runtime.container:save_param_dict",
    "scalar_type": "armillary.relay.types:scalar_type",
    "testing": "armillary.relay.testing",
    "visualize": "armillary.relay.visualization.picture:visualize",
    "vm": "armillary.relay.backend.vm",
}
_resolve, _listing = lazy_names(__name__, _NAMES)


def __getattr__(name: str) -> typing.Any:  # Any: a module, class, function or operator
    if name in _NAMES:
        return _resolve(name)
    result = _find_operator(name)
    if result is None:
        return _old_name(__name__, name)
    if _is_shown(name):  # those of back ends are found, but not shown
        globals()[name] = result
    return result


def __dir__() -> list[str]:
    return sorted({*_listing(), *_operator_names()})
