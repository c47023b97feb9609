"""States of a network: inputs whose next value is an output, kept by the runtime from run to run.

In: a module and {input: output}, by number or by the name that the model gives. Out: the module whose main says so in
its attribute `states`; the outputs stay until the graph is made (driver/program_codegen.py). Invariant: a state and its
next value have one type, whose sizes are numbers; no two states have one name or one output.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType, Type, tensor_fields

STATES = "states"


def states_of(function: Function) -> dict[str, int]:
    """The states of a main function: by an input's name the number of the output that is its next value."""
    return dict(function.get_attr(STATES, ()))


def declare_states(module: IRModule, states: Mapping[str, int | str]) -> IRModule:
    """The module with these states; TypeMismatch where one is no input or output, or their types differ."""
    if not states:
        return module
    module = infer_type(module)
    main = module["main"]
    assert isinstance(main, Function), "main is a function"
    names = list(main.get_attr("output_names", ()))
    types = tensor_fields(main.body.checked_type)
    inputs: dict[str, Type] = {p.name_hint: p.checked_type for p in main.params}
    rows = [(name, _output(name, output, names, len(types))) for name, output in states.items()]
    for name, output in rows:
        _check(name, inputs, types[output])
    if len({output for _, output in rows}) < len(rows):
        raise UnsupportedError("two states take one output", hint="give each an output of its own")
    result = module.copy()
    result["main"] = main.with_attr(STATES, tuple(rows))
    return result


def _output(state: str, output: int | str, names: list[str], count: int) -> int:
    if isinstance(output, str) and output in names:
        return names.index(output)
    if isinstance(output, int) and not isinstance(output, bool) and 0 <= output < count:
        return output
    hint = f"outputs are 0 to {count - 1}" + (f": {', '.join(names)}" if names else "")
    raise TypeMismatch(f"state {state}: the network has no output {output!r}", hint=hint)


def _check(name: str, inputs: Mapping[str, Type], value: TensorType) -> None:
    if name not in inputs:
        raise TypeMismatch(f"state {name}: it is no input", hint=f"inputs are {', '.join(inputs)}")
    ty = inputs[name]
    if not isinstance(ty, TensorType) or (ty.shape, ty.dtype) != (value.shape, value.dtype):
        raise TypeMismatch(f"state {name}: its type is {ty}, of its next value {value}", hint="they must be one type")
    if not all(isinstance(d, int) for d in ty.shape):
        raise UnsupportedError(f"state {name}: {ty} has open sizes", hint="fix its shape: shape=")
