"""Functions by name, under the module's old name.

In: a name. Out: the functions of `registry.py`. Invariant: no logic here.
"""

from armillary.registry import get_global_func, list_global_func_names, register_func, remove_global_func

__all__ = ["get_global_func", "list_global_func_names", "register_func", "remove_global_func"]
