"""`topi.x86`, `topi.generic`, `topi.arm_cpu` …: namespaces where old scripts find computes and schedules by machine.

In: a name such as `conv2d_nhwc_spatial_pack` or `schedule_injective`. Out: the compute of that operator, whichever
algorithm the name asks for, and one schedule for all (`schedules.py`). Invariant: no namespace has anything of its own:
which algorithm runs is chosen for the machine, not by the name (`backends/`).
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

from armillary.target.pstate import SMEAttributes
from armillary.topi import arm_int8, block_rows, padding, utils, workloads
from armillary.topi.operators import function_named
from armillary.topi.schedules import arm_injective, from_existing, schedule

if TYPE_CHECKING:
    from armillary.base.aliases import AnyFunction

NAMESPACES = (
    "adreno",
    "arm_cpu",
    "bifrost",
    "cuda",
    "generic",
    "gpu",
    "hls",
    "intel_graphics",
    "mali",
    "rocm",
    "x86",
)
_FILES = ("broadcast", "math", "random", "reduction", "scan", "sort", "sparse", "transform")
_INNER = (
    "arm_cpu.injective",
    "x86.injective",
    "generic.injective",
    "nn.elemwise",
    "nn.mapping",
    "nn.pooling",
    "vision.rcnn",
    "vision.ssd",
    "x86.tensor_intrin",
)
_ALGORITHMS = (  # what old names say besides the operator
    "_spatial_pack",
    "_winograd",
    "_nopack",
    "_direct",
    "_without_weight_transform",
    "_workload",
)
_OLD_NAMES = {
    **{f"compute_conv2d_NHWC_{kind}": "conv2d_nhwc" for kind in ("hybrid", "hybrid_SVE", "hybrid_SME")},
    **{f"compute_conv2d_NHWC_quantized_{kind}": "conv2d_nhwc" for kind in ("interleaved", "native")},
    "dense_dynamic": "dense",
    "dense_int8": "dense",
    "compute_depthwise_conv2d_nhwc": "depthwise_conv2d_nhwc",
    "conv2d_NCHWc": "conv2d_NCHWc",
}
_FILES_BESIDE: dict[str, dict[str, object]] = {  # files, some with the name of a function, which stands in the package
    "nn.conv2d": {"Workload": workloads.Workload, "_get_workload": workloads.conv2d_workload},
    "nn.depthwise_conv2d": {"Workload": workloads.Workload, "_get_workload": workloads.depthwise_workload},
    "x86.conv2d_avx_common": {"_fallback_schedule": workloads.vector_knobs},
    "x86.depthwise_conv2d": {"_fallback_schedule": workloads.vector_knobs},
    "arm_cpu.pstate_attributes": {"SMEAttributes": SMEAttributes},
    "generic.conv2d": {"fallback_schedule_cpu_common_int8": workloads.byte_knobs},
}
_PLACES = ("armillary.topi.nn", "armillary.topi", "armillary.topi.image", "armillary.topi.vision")


class Namespace(types.ModuleType):
    """A module whose functions are those of `topi.nn` and `topi`, and `schedule_*`."""

    def __getattr__(self, name: str) -> AnyFunction:  # a function of tensors
        if name == "schedule_injective_from_existing":
            return from_existing
        if name.startswith("schedule_"):
            return arm_injective if name == "schedule_injective" and ".arm_cpu" in self.__name__ else schedule
        short = _OLD_NAMES.get(name, name)
        for ending in ("", *_ALGORITHMS):
            if short.endswith(ending) and not short.startswith("__"):
                for place in _PLACES:
                    try:
                        return function_named(place, short.removesuffix(ending))
                    except AttributeError:
                        continue
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def namespaces() -> dict[str, types.ModuleType]:
    """The modules of topi by name, importable from now on, those inside them too."""
    result: dict[str, types.ModuleType] = {name: _namespace(name) for name in (*NAMESPACES, *_FILES)}
    del result["sort"]  # a function stands there; the file's name can be imported from
    for name in _INNER:
        outer, inner = name.split(".")
        owner = result.get(outer) or importlib.import_module(f"armillary.topi.{outer}")
        setattr(owner, inner, _namespace(name))
    sys.modules[f"{__package__}.nn.utils"] = padding
    sys.modules[f"{__package__}.x86.utils"] = result["x86"].utils = utils  # type: ignore[attr-defined]
    sys.modules[f"{__package__}.arm_cpu.conv2d_int8"] = arm_int8
    for name, functions in _FILES_BESIDE.items():
        vars(_namespace(name)).update(functions)
    result["generic"].conv2d = sys.modules[f"{__package__}.generic.conv2d"]  # type: ignore[attr-defined]
    sys.modules[f"{__package__}.sparse.utils"] = result["sparse"].utils = block_rows  # type: ignore[attr-defined]
    result["x86"].__path__ = result["arm_cpu"].__path__ = result["generic"].__path__ = result["sparse"].__path__ = []
    setattr(importlib.import_module("armillary.topi.nn"), "utils", padding)  # noqa: B010  (mypy allows no assignment)
    return result


def _namespace(name: str) -> Namespace:
    namespace = Namespace(f"armillary.topi.{name}", f"`topi.{name}`: see armillary/topi/vendors.py.")
    sys.modules[namespace.__name__] = namespace
    return namespace
