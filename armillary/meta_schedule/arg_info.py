"""Arguments of a function as lists of JSON: `ArgInfo.from_prim_func(function)`.

In: a function, or a module of one. Out: a `TensorInfo` for each buffer. Invariant: its JSON is ["TENSOR", dtype,
shape].
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.json_types import JsonValue
from armillary.base.record import record
from armillary.errors import ScheduleError
from armillary.ir import IRModule
from armillary.tir import build
from armillary.tir import stmt as S


@record
class TensorInfo:
    """A tensor: its type and its sizes."""

    dtype: str
    shape: tuple[int, ...]

    def as_json(self) -> list[JsonValue]:
        """As a list."""
        return ["TENSOR", self.dtype, list(self.shape)]


class ArgInfo:
    """Reads what arguments are."""

    @staticmethod
    def from_json(json_obj: Sequence[JsonValue]) -> TensorInfo:
        """The argument of a list."""
        if len(json_obj) != 3 or json_obj[0] != "TENSOR":
            raise ScheduleError(f"ArgInfo: got {json_obj!r:.60}, wanted ['TENSOR', dtype, shape]")
        return TensorInfo(str(json_obj[1]), tuple(int(n) for n in json_obj[2]))

    @staticmethod
    def from_prim_func(func: S.PrimFunc) -> list[TensorInfo]:
        """The buffers of a function, which have known sizes."""
        rows = []
        for param in func.params:
            sizes = [build.as_int(n) for n in param.shape] if isinstance(param, S.Buffer) else [None]
            if not isinstance(param, S.Buffer) or None in sizes:
                raise ScheduleError(f"ArgInfo: parameter {param.name} is no buffer of known sizes")
            rows.append(TensorInfo(str(param.dtype), tuple(n for n in sizes if n is not None)))
        return rows

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[TensorInfo]:
        """Those of the function of a module, "main" where there are several."""
        del remove_preproc
        functions = {name: f for name, f in mod.items() if isinstance(f, S.PrimFunc)}
        if not functions or (len(functions) > 1 and "main" not in functions):
            raise ScheduleError(f"ArgInfo: the module has {len(functions)} functions of loops and none is main")
        return ArgInfo.from_prim_func(functions.get("main", next(iter(functions.values()))))
