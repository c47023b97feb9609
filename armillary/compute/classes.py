"""The classes of the functions, made of the table and of what implements them, on both sides.

In: a name, `NEGaussian3x3` or `CLGaussian3x3`. Out: its class. Invariant: a class is made once, when it is first asked
for; on a device it is the processor's, on what the device's module calls `OnDevice`, unless that module has a class of
its own for it. The table: `functions/signatures.py`.
"""

from __future__ import annotations

from types import ModuleType

from armillary.base.lazy import deferred, imported
from armillary.base.once import once
from armillary.compute.functions.configured import ConfiguredFunction
from armillary.compute.functions.signatures import ROWS

with deferred():
    from armillary.compute.cl import features as cl_features
    from armillary.compute.cl import layers as cl_layers
    from armillary.compute.cl import pyramids as cl_pyramids
    from armillary.compute.cl import statistics as cl_statistics
    from armillary.compute.cl import vision as cl_vision
    from armillary.compute.functions.formulas import arithmetic as points
    from armillary.compute.functions.formulas import filters as masks
    from armillary.compute.functions.nn import convolution, layers, product, shape
    from armillary.compute.functions.vision import (
        arithmetic,
        colour,
        features,
        filters,
        flow,
        geometry,
        hog,
        pyramid,
        statistics,
    )

_NEURAL = {"convolution": convolution, "layers": layers, "product": product, "shape": shape}
_VISION = {"arithmetic": arithmetic, "colour": colour, "features": features, "filters": filters, "flow": flow}
_VISION |= {"geometry": geometry, "hog": hog, "pyramid": pyramid, "statistics": statistics}
_DEVICE = {"features": cl_features, "layers": cl_layers, "pyramids": cl_pyramids, "vision": cl_vision}
_DEVICE |= {"statistics": cl_statistics}
_MODULES: dict[str, ModuleType] = {
    **{f"nn.{name}": module for name, module in _NEURAL.items()},
    **{f"vision.{name}": module for name, module in _VISION.items()},
    **{f"cl.{name}": module for name, module in _DEVICE.items()},
}
_FORMULAS = {"vision.arithmetic": points, "vision.filters": masks}


@once
def class_of(name: str) -> type[ConfiguredFunction]:
    """The class of a function of a side."""
    side, row = name[:2], ROWS[name[2:]]
    own: type = getattr(_MODULES[row.modules[0]], row.class_name)
    bases: tuple[type, ...] = (own,)
    if side == "CL":
        device = imported(_MODULES[row.modules[1]])
        special = getattr(device, row.class_name, None)
        bases = (special,) if special is not None else (device.OnDevice, own)
    content: dict[str, object] = {"row": row, "__doc__": row.doc, "__module__": __package__}
    content["class_of"] = staticmethod(class_of)
    if row.setting.isupper():
        content["formula"] = getattr(_FORMULAS[row.modules[0]], row.setting)
    elif row.setting:
        content["setting"] = row.setting
    result: type[ConfiguredFunction] = type(name, bases, content)
    return result


def __getattr__(name: str) -> type[ConfiguredFunction]:
    if name[:2] in ("NE", "CL") and name[2:] in ROWS:
        return class_of(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
