"""The functions that users call to read a model of PyTorch.

In: an ExportedProgram, or a module of TorchScript. Out: `(IRModule, params)`. Invariant: nothing of torch
is imported before a model of it is passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.errors import ModelError, TypeMismatch

if TYPE_CHECKING:
    from armillary.frontend.pytorch.script import Convert
    from armillary.ir import IRModule

with deferred():
    from armillary.frontend.pytorch.exported import import_program as _import_program
    from armillary.frontend.pytorch.script import import_script as _import_script


@boundary("from_exported_program")
def from_exported_program(
    program: object,  # a torch.export.ExportedProgram
    shape: Mapping[str, Sequence[int | str]] | None = None,
    *,
    freeze_params: bool = False,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a program of `torch.export.export(model.eval(), example_inputs)`.

    Sizes that the program leaves open (`dynamic_shapes=`) stay open, with its ranges and the names of its Dims; `shape`
    fixes or names those of an input: `{"x": ("batch", 3, 224, 224)}`. Parameters and
    buffers are inputs of the module, named as in the model, unless `freeze_params` makes them constants. Weights on the
    CPU are shared with the model, not copied. Raises UnsupportedError, naming all of them, for unknown operators.
    """
    if type(program).__name__ != "ExportedProgram":
        what = type(program).__name__
        hint = "torch.export.export(model.eval(), example_inputs)"
        raise ModelError(f"from_exported_program takes an ExportedProgram of torch.export, got {what}", hint=hint)
    result: tuple[IRModule, dict[str, Array]] = _import_program(program, shape or {}, freeze_params)
    return result


def states_of(module: IRModule) -> dict[str, str]:
    """The buffers that an imported program changes, with the outputs that are their next values.

    They are what `relay.build(module, target, params=params, states=states_of(module))` takes, without these buffers
    among the params: they are inputs then, zero until they are set, and what a run makes of them stays.
    """
    names = module["main"].attrs["output_names"]
    inputs = {p.name_hint for p in module["main"].params}
    return {n.removesuffix(".new"): n for n in names if n.endswith(".new") and n.removesuffix(".new") in inputs}


from_torch = from_exported_program


@boundary("from_pytorch")
def from_pytorch(
    script_module: object,  # a torch.jit.ScriptModule
    input_infos: Sequence[object],
    custom_convert_map: Mapping[str, Convert] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a module of `torch.jit.trace` or `torch.jit.script`.

    `input_infos` lists `(name, shape)` or `(name, (shape, dtype))` in the order of the inputs; `default_dtype` is that
    of inputs without one. `custom_convert_map` has converters `f(inputs, input_types)` by kinds of nodes
    (`"aten::relu"`). `use_parser_friendly_name` writes parameters with underscores in place of dots. Quantised modules
    are refused, so `keep_quantized_weight` changes nothing. For new code, `from_exported_program`.
    """
    if not hasattr(script_module, "graph") or not hasattr(script_module, "code"):
        what = type(script_module).__name__
        hint = "torch.jit.trace(model.eval(), example_inputs), or from_exported_program"
        raise ModelError(f"from_pytorch takes a module of TorchScript, got {what}", hint=hint)
    inputs = [_described(info, default_dtype) for info in input_infos]
    result: tuple[IRModule, dict[str, Array]] = _import_script(
        script_module, inputs, custom_convert_map or {}, use_parser_friendly_name
    )
    return result


def _described(info: object, dtype: str) -> tuple[str, tuple[int, ...], str]:
    """Name, shape and dtype of an input."""
    wanted = 'wanted (name, shape) or (name, (shape, dtype)): [("input0", (1, 3, 224, 224))]'
    if not isinstance(info, list | tuple) or len(info) != 2 or not isinstance(info[0], str):
        raise TypeMismatch(f"from_pytorch: the input is described by {info!r}", hint=wanted)
    name, rest = info
    is_typed = isinstance(rest, list | tuple) and len(rest) == 2 and isinstance(rest[1], str)
    shape, kind = rest if is_typed else (rest, dtype)
    if not all(isinstance(d, int) for d in shape):
        raise TypeMismatch(f"from_pytorch: the shape of {name!r} is {shape!r}", hint=wanted)
    names = {"float": "float32", "double": "float64", "int": "int32", "long": "int64", "half": "float16"}
    return name, tuple(shape), names.get(kind, kind)
