"""Graph passes, one file each, in folders by idea, found by being here.

In: a Relay-era name such as `FoldConstant`. Out: a maker of that pass: `FoldConstant()`, `CombineParallelConv2D(3)`,
`ConvertLayout({"nn.conv2d": ["NHWC", "default"]})`. Invariant: there is no list of passes to keep; `load_all`
imports its files in sorted order, and each file registers its pass in `transform.PASSES`. It runs when a pass is asked
for by name: a build imports only those it runs, in the order that pipeline.py says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from armillary.base.lazy import deferred
from armillary.instrument import PassTimingInstrument, PrintAfter
from armillary.transform import (
    PASSES,
    Pass,
    PassContext,
    PassDefinition,
    PassInfo,
    PassInstrument,
    Sequential,
    function_pass,
    module_pass,
)

with deferred():
    from armillary.ops.gradient import gradient as _gradient
    from armillary.relay.transform.layout._layout_config import LayoutConfig as _LayoutConfig
    from armillary.relay.transform.quantize._recast import recast as _recast

_NO_PASSES = ("infer_layout_utils.py",)  # files that scripts import by name
FunctionPass = Pass
__all__ = [
    "FunctionPass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassTimingInstrument",
    "PrintAfter",
    "Sequential",
    "function_pass",
    "module_pass",
]


@cache
def load_all() -> dict[str, PassDefinition]:
    """Import every graph pass, those of back ends too; they are given by each of their names."""
    names = module_names()
    for name in names:
        importlib.import_module(name)
    here = [p for p in PASSES.values() if p.function.__module__ in names]
    return {name: p for p in here for name in (p.info.name, *p.info.aliases)}


def module_names() -> list[str]:
    """Dotted names of the files of passes, in order: here, and of back ends those in `graph` and beside algorithms."""
    package = Path(__file__).parents[2]
    files = [*Path(__file__).parent.rglob("*.py"), *package.glob("backends/*/graph/**/*.py")]
    passes = [path for path in files if not path.name.startswith("_") and path.name not in _NO_PASSES]
    passes += [path for path in package.glob("backends/*/*/*/*.py") if "\n@define_pass(" in path.read_text("utf-8")]
    return sorted({".".join(path.relative_to(package.parent).with_suffix("").parts) for path in passes})


def __getattr__(name: str) -> Callable[..., Pass]:
    if name in ("gradient", "recast"):
        return cast("Callable[..., Pass]", _gradient if name == "gradient" else _recast)  # functions of expressions
    if name == "LayoutConfig":
        return cast("Callable[..., Pass]", _LayoutConfig)  # a context, where others are makers of passes
    by_name = {} if name.startswith("__") else load_all()
    if name not in by_name:
        raise AttributeError(f"module {__name__!r} has no pass {name!r}; it has: {', '.join(sorted(by_name))}")
    definition = by_name[name]

    def make(*args: object, **options: object) -> Pass:  # the pass's own options
        return definition.bind(*args, **options)

    make.__name__, make.__doc__ = name, definition.__doc__
    globals()[name] = make
    return make


def __dir__() -> list[str]:
    return sorted({*__all__, *load_all()})
