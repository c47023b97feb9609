"""Parameters as bytes, under the module name of Relay-era scripts.

In: a name. Out: what `artifact.py` and `runtime/container.py` have. Invariant: no logic here.
"""

from armillary.runtime.container import load_param_dict, save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]
