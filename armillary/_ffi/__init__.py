"""Names that Relay-era scripts take from `_ffi`: functions by name, errors, devices and types of data.

In: a name. Out: what `registry.py`, `errors.py` and `runtime/` have under their own. Invariant: no logic here.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{name: f"armillary._ffi.{name}" for name in ("base", "registry", "runtime_ctypes")},
        **{name: f"armillary.registry:{name}" for name in ("get_global_func", "register_func")},
    },
)
