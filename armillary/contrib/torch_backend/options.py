"""The options of `torch.compile(model, backend="armillary", options={…})`.

In: a dictionary, or nothing. Out: an `Options`. Invariant: an unknown name or value is refused with what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary.base.record import record
from armillary.errors import ConfigError

PRECISIONS = ("float32", "bfloat16", "float16")


@record
class Options:
    """How graphs are compiled.

    `precision` is that of the products (others stay in the model's own), `threads` how many run (0: as configured),
    `tune` the path of a log of AutoTVM records, `shapes` how many shapes of a graph are kept compiled, `cache` whether
    compiled graphs are kept on disk for other processes, `report` what is called with a text for each graph: what is
    compiled, what stays in eager mode, and why.
    """

    precision: str = "float32"
    threads: int = 0
    tune: str = ""
    target: str = "llvm"
    shapes: int = 8
    cache: bool = True
    report: Callable[[str], object] | None = None


def options_of(values: Mapping[str, object] | None) -> Options:
    """The options from what `torch.compile` passes on."""
    known = Options.__dataclass_fields__
    unknown = sorted(set(values or {}) - set(known))
    if unknown:
        raise ConfigError(f"the option {unknown[0]!r} is not known", hint=f"known: {', '.join(known)}")
    options = Options(**(values or {}))  # type: ignore[arg-type]  # checked next
    if options.precision not in PRECISIONS:
        raise ConfigError(f"precision is {options.precision!r}", hint=f"one of {', '.join(PRECISIONS)}")
    if not isinstance(options.threads, int) or options.threads < 0 or not isinstance(options.shapes, int):
        raise ConfigError(f"threads is {options.threads!r}, shapes {options.shapes!r}; wanted whole numbers from 0 on")
    if not isinstance(options.cache, bool):
        raise ConfigError(f"cache is {options.cache!r}", hint="True or False")
    return options
