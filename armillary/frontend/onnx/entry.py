"""The functions that users call to read an ONNX model.

In: a path, bytes or a ModelProto. Out: `(IRModule, params)`. Invariant: the importer (walk.py) and the operators are
loaded by the first call, after its arguments are made: `from_onnx(onnx.load(path))` has the file in memory twice while
protobuf reads it, and a small network's peak is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING

from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.errors import ModelError

if TYPE_CHECKING:
    from armillary.ir import IRModule

with deferred():
    from armillary.frontend.onnx.walk import import_model as _import_model


@boundary("from_onnx")
def from_onnx(
    model: object,  # a path, bytes or an onnx.ModelProto
    shape: Mapping[str, object] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, object] | None = None,
    export_node_renamed_model_path: str | os.PathLike[str] | None = None,
    *,
    static_inputs: Mapping[str, object] | None = None,
    variants: Sequence[Mapping[str, object]] | None = None,
    bounds: Mapping[str, object] | None = None,
    hint: Mapping[str, object] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import an ONNX model.

    Symbolic dimensions stay open: the module is compiled once for all their sizes, which inputs give when they are set.
    `bounds` states the least and the largest of some by name, `{"batch": (1, 64)}`, `hint` a typical one, for which
    kernels are chosen. `shape` binds shapes of inputs to numbers, `dtype` says the type of inputs that declare none,
    `static_inputs` fixes inputs to values. `variants` lists numbers for symbolic dimensions (of the model, or named in
    `shape`), or shapes: the module then has a main and, for all but the first, a function marked `Variant=1`. With
    `freeze_params` weights are constants and params is empty.
    Raises ModelError for a damaged model and UnsupportedError, naming all of them, for unknown operators.
    """
    arguments = Arguments("from_onnx", ModelError)
    named = {"convert_config": convert_config, "static_inputs": static_inputs, "bounds": bounds, "hint": hint}
    for name, value in named.items():
        arguments.kind(name, value, (Mapping, NoneType), "a dictionary")
    result: tuple[IRModule, dict[str, Array]] = _import_model(
        model,
        {} if shape is None else shape,
        dtype,
        opset,
        freeze_params,
        convert_config or {},
        export_node_renamed_model_path,
        static_inputs or {},
        variants,
        bounds or {},
        hint or {},
    )
    return result


@boundary("from_onnx")
def from_file(
    path: str,
    shape: Mapping[str, object] | None = None,
    variants: Sequence[Mapping[str, object]] | None = None,
    notice: Callable[[str], None] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """`from_onnx` for a program that compiles the model at once: large weights are read when they are needed.

    With `notice`, dimensions that nothing gives a number get one by their names (dimensions.py), and it is told so.

    A file that is written to in the meantime is refused (ModelError) at the next look.
    """
    result: tuple[IRModule, dict[str, Array]] = _import_model(
        path, shape or {}, variants=variants, waits=True, notice=notice
    )
    return result
