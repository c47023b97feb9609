"""Modules, under the name of Relay-era scripts.

In: a name. Out: what it stands for. Invariant: nothing is here, and nothing imported before it is asked for. Where to
look next: `ir/__init__.py`.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "IRModule": "armillary.ir:IRModule",
    },
)
