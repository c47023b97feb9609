"""Graph passes, one file each, found by being here.

In: a Relay-era name such as `FoldConstant`. Out: a maker of that pass: `FoldConstant()`, `CombineParallelConv2D(3)`,
`ConvertLayout({"nn.conv2d": ["NHWC", "default"]})`. Invariant: there is no list of passes to keep; importing the
package imports its files in sorted order, and each file registers its pass in `transform.PASSES`. The order in which
the build runs them is in pipeline.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armillary.instrument import PassTimingInstrument, PrintAfter
from armillary.transform import (
    PASSES,
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    Sequential,
    function_pass,
    module_pass,
)

__all__ = [
    "Pass", "PassContext", "PassInfo", "PassInstrument", "PassTimingInstrument", "PrintAfter", "Sequential",
    "function_pass", "module_pass",
]  # fmt: skip

for _path in sorted(Path(__file__).parent.glob("*.py")):
    if not _path.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_path.stem}")

_HERE = [p for p in PASSES.values() if p.function.__module__.startswith(__name__ + ".")]
_BY_NAME = {name: p for p in _HERE for name in (p.info.name, *p.info.aliases)}


def __getattr__(name: str) -> Callable[..., Pass]:
    if name not in _BY_NAME:
        raise AttributeError(f"module {__name__!r} has no pass {name!r}; it has: {', '.join(sorted(_BY_NAME))}")
    definition = _BY_NAME[name]

    def make(*args: Any, **options: Any) -> Pass:  # Any: the pass's own options
        return definition.bind(*args, **options)

    make.__name__, make.__doc__ = name, definition.__doc__
    globals()[name] = make
    return make


def __dir__() -> list[str]:
    return sorted({*__all__, *_BY_NAME})
