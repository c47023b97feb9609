"""Budgets: how much work and memory a model may ask of the compiler, in one place.

In: what is counted, and where. Out: nothing, or a BudgetError that says which budget, what it met and how to raise it.
A few bytes of a model can describe work without end (functions that double, loops in loops, constants that grow). Each
budget is a PassContext key; defaults are above what networks in use need. Invariant: a model of under 10 KB takes less
than 2 GB and 60 s to compile with the defaults. Work that follows the size of what the user gives has no budget.
"""

from __future__ import annotations

from armillary.base.record import record
from armillary.errors import BudgetError, Span
from armillary.transform import PassContext, register_config_option


@record
class Budget:
    """A limit: its PassContext key, its default, what is counted, and what for."""

    key: str
    default: int
    counts: str
    doc: str

    @property
    def limit(self) -> int:
        """What the current PassContext allows."""
        return int(PassContext.current().config.get(self.key, self.default))

    def check(self, met: int, where: str, span: Span | None = None, free: int = 0) -> None:
        """Refuse more than the limit; `free` is what the user's own data allows beyond it."""
        limit = self.limit + free
        if met > limit:
            message = f"{where}: {_amount(met)} {self.counts}, and the budget {self.key} allows {_amount(limit)}"
            raise BudgetError(message, span=span, hint=f'PassContext(config={{"{self.key}": {met}}}) raises it')


def _amount(number: int) -> str:
    return f"{number:,}" if number < 10**15 else f"{number:.3g}"


REPEATS = 16  # times that a node of the file may be imported, on average
GROWTH = 8  # bytes computed from each byte of constants that is given: int8 weights become float64 at most
KERNELS_PER_NODE = 8  # of the file, for what its own nodes ask
FILE_NODES = "file_nodes"  # attribute of a function: nodes of the file that it was imported from, where it has more
FILE_BYTES = "file_bytes"  # the same: bytes of the constants of that file, where an import has made many more


def _budget(key: str, default: int, counts: str, doc: str) -> Budget:
    register_config_option(key, int, default, f"{doc} (docs/limits.md)")
    return Budget(key, default, counts, doc)


EXPANDED_NODES = _budget(
    "budget.expanded_nodes",
    12_000,
    "nodes come from functions, unrolled loops or sequences",
    "nodes that an import may make of functions, unrolled loops and sequences",
)
ITERATIONS = _budget(
    "budget.iterations",
    1024,
    "iterations are unrolled",
    "iterations that an import may unroll, over all loops together",
)
FOLDED_BYTES = _budget(
    "budget.folded_bytes",
    1 << 29,
    "bytes of constants are computed",
    "bytes of constants that are computed when compiling, beyond eight times those given",
)
FOLDED_OPERATIONS = _budget(
    "budget.folded_operations",
    1 << 33,
    "operations give a constant",
    "multiply-adds, or elements read through windows, by which one constant is computed when compiling",
)
TENSOR_BYTES = _budget("budget.tensor_bytes", 1 << 31, "bytes are one result", "bytes of one operator's result")
PADDED_ELEMENTS = _budget(
    "budget.padding", 1 << 24, "elements of padding are at one end of an axis", "padding at one end of an axis"
)
KERNELS = _budget(
    "budget.kernels",
    600,
    "kernels (a contraction's counts as four) come from functions and unrolled loops",
    "different kernels of a model of functions or unrolled loops, one of a contraction counted as four",
)
KERNEL_SIZE = _budget(
    "budget.kernel_size", 20_000, "operators and inputs are in one kernel", "operators and inputs of one kernel"
)
COMPILE_SECONDS = _budget(
    "budget.compile_seconds", 30, "seconds", "seconds to compile one kernel, after which a warning names it"
)
ALL = (
    EXPANDED_NODES,
    ITERATIONS,
    FOLDED_BYTES,
    FOLDED_OPERATIONS,
    TENSOR_BYTES,
    PADDED_ELEMENTS,
    KERNELS,
    KERNEL_SIZE,
    COMPILE_SECONDS,
)
