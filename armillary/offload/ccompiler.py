"""`ccompiler`: sums, differences and products of tensors of one shape, as C source that is linked with the kernels.

In: a function of such calls. Out: C. Invariant: each element is computed as our own kernels do, in the dtype of the
tensors (whole numbers wrap around); a tensor of another shape or dtype is left to the rest of the graph. It shows what
a code generator has to give (docs/architecture.md: kernels), and is what scripts mean that name it.
"""

from __future__ import annotations

from armillary.errors import UnsupportedError
from armillary.offload.contract import Offload, SourceModule, register_offload
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order

NAME = "ccompiler"
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}
_TYPES = {"float32": "float", "float64": "double"}
_TYPES |= {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _refusal(call: Call) -> str | None:
    """Why a call is not taken."""
    types = {str(arg.checked_type) for arg in call.args} | {str(call.checked_type)}
    if len(types) != 1:
        return f"operands of {' and '.join(sorted(types))}, wanted one type"
    ty = call.checked_type
    if not isinstance(ty, TensorType) or not all(isinstance(size, int) for size in ty.shape):
        return f"{ty} has a dimension that is not known"
    return None if str(ty.dtype) in _TYPES else f"there is no C type of {ty.dtype}"


def generate(function: Function) -> SourceModule:
    """A loop over the elements. Raises UnsupportedError for a call that is none of the three."""
    inputs, constants = list(function.params), list[Constant]()
    names: dict[int, str] = {id(var): f"i{k}" for k, var in enumerate(inputs)}
    lines = list[str]()
    for expr in post_order(function.body):
        if isinstance(expr, Constant) and id(expr) not in names:
            names[id(expr)] = f"c{len(constants)}"
            constants.append(expr)
        elif isinstance(expr, Call):
            names[id(expr)] = f"v{len(lines)}"
            lines.append(f"{_c_type(expr)} v{len(lines)} = {_term(expr, names)};")
        elif not isinstance(expr, Var | Op | Constant):
            raise UnsupportedError(f"ccompiler: a {type(expr).__name__} in {function.get_attr('global_symbol')}")
    operands = [*inputs, *constants]
    places = [f"i{k}" for k in range(len(inputs))] + [f"c{k}" for k in range(len(constants))]
    loads = [
        f"const {_c_type(e)} *p{name} = (const {_c_type(e)} *)data[{k}];"
        for k, (name, e) in enumerate(zip(places, operands, strict=True))
    ]
    values = [f"{_c_type(e)} {name} = p{name}[k];" for name, e in zip(places, operands, strict=True)]
    result = function.body
    signature = "void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread"
    text = "\n    ".join([*loads, f"{_c_type(result)} *out = ({_c_type(result)} *)data[{len(operands)}];"])
    inner = "\n        ".join([*values, *lines, f"out[k] = {names[id(result)]};"])
    source = f"""#include <stdint.h>
int32_t {function.get_attr("global_symbol")}__p0({signature}) {{
    (void)vars, (void)begin, (void)end, (void)thread;
    {text}
    for (int64_t k = 0; k < {_count(result)}; k++) {{
        {inner}
    }}
    return 0;
}}
"""
    return SourceModule(source, tuple(constants))


def _tensor(expr: Expr) -> TensorType:
    ty = expr.checked_type
    if not isinstance(ty, TensorType) or str(ty.dtype) not in _TYPES:
        raise UnsupportedError(f"ccompiler: a value of {ty}", hint=f"tensors of {', '.join(_TYPES)}")
    return ty


def _c_type(expr: Expr) -> str:
    return _TYPES[str(_tensor(expr).dtype)]


def _count(expr: Expr) -> int:
    count = 1
    for size in _tensor(expr).static:
        count *= size
    return count


def _term(call: Call, names: dict[int, str]) -> str:
    """One element, of signed numbers computed without a sign, in which C lets them wrap around."""
    name = call.op.name if isinstance(call.op, Op) else type(call.op).__name__
    reason = _refusal(call) if name in _SIGNS else f"there is no C for it; there is: {', '.join(_SIGNS)}"
    if reason:
        raise UnsupportedError(f"ccompiler: {name}: {reason}", span=call.span)
    kind = _c_type(call)
    left, right = (names[id(arg)] for arg in call.args)
    if kind.startswith(("int", "uint")):
        return f"({kind})((uint64_t){left} {_SIGNS[name]} (uint64_t){right})"
    return f"{left} {_SIGNS[name]} {right}"


register_offload(Offload(NAME, generate, operators=dict.fromkeys(_SIGNS, _refusal)))
