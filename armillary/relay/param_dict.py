"""Parameters as bytes, under the module name of Relay-era scripts.

In: a name. Out: what `artifact.py` has under its own. Invariant: no logic here.
"""

from armillary.artifact import load_params as load_param_dict
from armillary.artifact import save_params as save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]
