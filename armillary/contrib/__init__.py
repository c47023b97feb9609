"""Façades under the names of Relay-era scripts.

In: a name. Out: the module. Invariant: each is imported when it is first asked for.
"""

from armillary.base.lazy import lazy_names

_MODULES = (
    "cblas",
    "cc",
    "clang",
    "cutlass",
    "debug_executor",
    "debugger",
    "download",
    "graph_executor",
    "graph_runtime",
    "mkl",
    "ndk",
    "nvcc",
    "pipeline_executor",
    "pipeline_executor_build",
    "popen_pool",
    "random",
    "relay_viz",
    "sparse",
    "tedd",
    "utils",
    "variants",
)
__getattr__, __dir__ = lazy_names(__name__, {name: f"armillary.contrib.{name}" for name in _MODULES})
