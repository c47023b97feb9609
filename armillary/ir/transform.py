"""Passes and their contexts, under the name of Relay-era scripts.

In: a name. Out: what it stands for. Invariant: nothing is here, and nothing imported before it is asked for. Where to
look next: `transform.py`.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{
            name: f"armillary.transform:{name}"
            for name in ("Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "module_pass")
        },
    },
)
