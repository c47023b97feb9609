"""TVMScript: loop programs written as Python functions, and printed as such.

    from armillary.script import ir as I, tir as T

    @T.prim_func
    def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in T.vectorized(8):
            B[i] = A[i] * 2.0

In: the source of a function or class, never run as Python. Out: `tir.PrimFunc`, `IRModule`; `.script()` of either gives
text that `from_source` reads back. Core modules: tir (the names in programs), parser (statements), evaluate
(expressions), printer. Invariant: nothing of a compile imports this package.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{name: f"armillary.script.{name}" for name in ("ir", "tir", "parser", "printer")},
        **{name: f"armillary.script.source:{name}" for name in ("from_source", "parse")},
        "ir_module": "armillary.script.ir:ir_module",
    },
)
