"""Devices and types of data, under the module's old name.

In: a name. Out: the classes of `runtime/device.py` and `base/dtype.py`. Invariant: no logic here.
"""

from armillary.base.dtype import DType as DataType
from armillary.runtime.device import Device

TVMContext = Device
__all__ = ["DataType", "Device", "TVMContext"]
