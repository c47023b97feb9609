"""`relay.quantize.quantize(mod, params, dataset)`: a float network as one of integers.

In: a module, values of its parameters, a dataset where settings (config.py) ask for one. Out: the module, simplified,
with the convolutions and products that are not skipped in integers. Invariant: types of inputs and outputs stay, unless
`partition_conversions` says otherwise. The steps: annotate.py, calibrate.py, realize.py, partition.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.base.boundary import boundary
from armillary.driver.quantization.annotate import annotate
from armillary.driver.quantization.calibrate import Dataset, calibrate
from armillary.driver.quantization.config import current_qconfig
from armillary.driver.quantization.partition import partition_conversions
from armillary.driver.quantization.realize import realize
from armillary.ir import IRModule
from armillary.relay.binding import bind_params_by_name
from armillary.relay.transform.simplify.canonicalize_ops import canonicalize_ops
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.transform.simplify.fold_scale_axis import fold_scale_axis
from armillary.relay.transform.simplify.simplify_inference import simplify_inference


@boundary("quantize.prerequisite_optimize", arguments=True)
def prerequisite_optimize(mod: IRModule, params: Mapping[str, object] | None = None) -> IRModule:
    """Parameters bound, normalisations folded into weights, biases additions."""
    if params:
        mod = mod.copy()
        names = {param.name_hint for param in mod["main"].params}
        mod["main"] = bind_params_by_name(mod["main"], {k: v for k, v in params.items() if k in names})
    in_numbers = fold_scale_axis.bind(constant_weights=True)  # weights that are computed have no bytes
    for step in (simplify_inference, fold_constant, in_numbers, canonicalize_ops, fold_constant):
        mod = step(mod)
    return mod


@boundary("quantize.quantize", arguments=True)
def quantize(mod: IRModule, params: Mapping[str, object] | None = None, dataset: Dataset | None = None) -> IRModule:
    """The module with its convolutions, and products if asked for, in 8-bit integers."""
    config = current_qconfig()
    mod = calibrate(dataset)(annotate()(prerequisite_optimize(mod, params)))
    if config.do_simulation:
        return mod
    mod = realize()(mod)
    if config.partition_conversions == "disabled":
        return mod
    return partition_conversions(mod, ensure_fully_integral=config.partition_conversions == "fully_integral")
