"""At which scales a network is quantised: `relay.quantize.calibrate(dataset)`.

In: an annotated module; for the modes "kl_divergence" and "percentile" a dataset: an iterable of dictionaries from
inputs to arrays. Out: the module with numbers for scales and limits. Invariant: weights get the scale that
`weight_scale` asks for, from their own values; data get the global scale or that of their samples, which are computed
by the float network, compiled for the current target. A layer that bytes make a constant is refused; without a dataset,
inputs that fill the range of the global scale show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import array_of
from armillary.driver.executor import create_executor
from armillary.driver.quantization.annotate import QAnnotateKind
from armillary.driver.quantization.config import QConfig, current_qconfig
from armillary.driver.quantization.thresholds import by_divergence, by_percentile
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.qnn.simulate import simulated_quantize
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, post_order
from armillary.target import Target
from armillary.transform import Pass, PassContext, module_pass

Rows = Sequence[Mapping[str, object]]
Dataset = Iterable[Mapping[str, object]]
_THRESHOLDS = {"kl_divergence": by_divergence, "percentile": by_percentile}


def calibrate(dataset: Dataset | None = None) -> Pass:
    """The pass that gives scales, by the settings in force when it runs."""

    def run(module: IRModule, context: PassContext) -> IRModule:
        del context
        return _calibrate(module, dataset, current_qconfig())

    result: Pass = module_pass(run, name="QuantizeCalibrate")
    return result


def _calibrate(module: IRModule, dataset: Dataset | None, config: QConfig) -> IRModule:
    main = _main(module)
    marks = marks_of(main)
    data = [mark for mark in marks if mark.attrs.kind != QAnnotateKind.WEIGHT]
    limits = _fromsampled(module, data, dataset, config) if data else {}
    scales = {id(m): _weight_scale(m, main, config) for m in marks if m.attrs.kind == QAnnotateKind.WEIGHT}
    steps = 2.0 ** (config.nbit_input - 1)
    scales |= {id(mark): np.asarray(limits[id(mark)] / steps, np.float32) for mark in data}
    new: dict[int, Expr] = {}
    for expr in post_order(main):
        rebuilt = map_children(expr, lambda child: new.get(id(child), child))
        if id(expr) in scales and isinstance(rebuilt, Call):
            bits = config.nbit_weight if rebuilt.attrs.kind == QAnnotateKind.WEIGHT else config.nbit_input
            most = np.float32(2 ** (bits - 1) - 1)
            numbers = (scales[id(expr)], np.asarray(-most), np.asarray(most))
            if isinstance(expr, Call) and isinstance(expr.args[0], Constant):
                refuse_constant(expr, _values(expr), numbers, main)
            rebuilt = Call(rebuilt.op, (rebuilt.args[0], *map(Constant, numbers)), rebuilt.attrs, rebuilt.span)
        new[id(expr)] = rebuilt
    return with_main(module, new[id(main)])


def marks_of(function: Function) -> list[Call]:
    """The marks of annotate, in the order in which they are computed."""
    return [e for e in post_order(function) if isinstance(e, Call) and e.op is simulated_quantize]


def _main(module: IRModule) -> Function:
    main = module["main"]
    assert isinstance(main, Function), "a module of Relay"
    return main


def with_main(module: IRModule, function: Expr) -> IRModule:
    """The module with another main function."""
    assert isinstance(function, Function), "a walk keeps a function one"
    module = module.copy()
    module["main"] = function
    return module


def _weight_scale(mark: Call, main: Function, config: QConfig) -> Array:
    """The size of a step of constant weights."""
    steps = 2.0 ** (config.nbit_weight - 1)
    if config.weight_scale == "channel_max":
        return channel_scale(mark, main, steps - 1)
    largest = _largest(np.abs(_values(mark)), None)
    if config.weight_scale == "power2":
        largest = np.asarray(2.0 ** math.ceil(math.log2(float(largest))))
        return (largest / steps).astype(np.float32)
    return (largest / (steps - 1)).astype(np.float32)


def channel_scale(mark: Call, main: Function, most: float = 127.0) -> Array:
    """The size of a step of constant weights for each output channel, whose largest weight is `most` steps."""
    values, axis = np.abs(_values(mark)), _channel_axis(mark, main)
    return (_largest(values, tuple(a for a in range(values.ndim) if a != axis)) / most).astype(np.float32)


def _values(mark: Call) -> Array:
    weight = mark.args[0]
    assert isinstance(weight, Constant), "kind WEIGHT is of constants"
    return np.asarray(weight.data, np.float32)


def _largest(magnitudes: Array, axes: tuple[int, ...] | None) -> Array:
    largest = np.asarray(magnitudes.max(axes, keepdims=axes is not None, initial=0.0))
    return np.where(largest > 0, largest, np.float32(1))


def _channel_axis(mark: Call, main: Function) -> int:
    """Along which axis of a weight the output channels lie."""
    reader = next(e for e in post_order(main) if isinstance(e, Call) and any(a is mark for a in e.args))
    layout = getattr(reader.attrs, "kernel_layout", "")
    return layout.index("O") if layout else 0


def _fromsampled(module: IRModule, marks: Sequence[Call], dataset: Dataset | None, config: QConfig) -> dict[int, float]:
    main, threshold = _main(module), _THRESHOLDS.get(config.calibrate_mode, lambda _: config.global_scale)
    target: Target | str = Target.current() or "llvm"
    if dataset is None and config.calibrate_mode == "global_scale":
        rows, target = _drawn(main, config.global_scale), "llvm"  # that target's device may not be here
        if not rows:
            return {id(mark): config.global_scale for mark in marks}
    else:
        rows = _calibration_rows(dataset, config)
    chunk = config.calibrate_chunk_by if config.calibrate_chunk_by > 0 else len(marks)
    result: dict[int, float] = {}
    for start in range(0, len(marks), chunk):
        part = marks[start : start + chunk]
        samples = sampled(module, [mark.args[0] for mark in part], rows, target)
        for mark, values in zip(part, samples, strict=True):
            result[id(mark)] = threshold(values)
            steps = 2.0 ** (config.nbit_input - 1)
            numbers = result[id(mark)] / steps, 1 - steps, steps - 1
            refuse_constant(mark, values, [np.asarray(n) for n in numbers], main)
    return result


def _calibration_rows(dataset: Dataset | None, config: QConfig) -> Rows:
    if dataset is None:
        mode = config.calibrate_mode
        raise ConfigError(
            f"quantize: {mode} needs a dataset", hint="quantize(mod, params, dataset=[{'data': array}, …])"
        )
    rows = list(dataset)
    if not rows:
        raise ConfigError("quantize: the dataset is empty", hint="a list of dictionaries from inputs to arrays")
    return rows


def _drawn(main: Function, limit: float) -> Rows:
    """One row that fills the range of a global scale; zeros for inputs of integers. None where a size is open."""
    random, row = np.random.default_rng(0), {}
    for param in main.params:
        ty = param.checked_type
        if not isinstance(ty, TensorType) or not all(isinstance(size, int) for size in ty.shape):
            return []
        is_float = ty.dtype.is_float
        row[param.name_hint] = random.uniform(-limit, limit, ty.static) if is_float else np.zeros(ty.static)
    return [row]


def layers_of(function: Function) -> list[Call]:
    """The calls that read marks, in the order in which they are computed."""
    ids = {id(mark) for mark in marks_of(function)}
    return [e for e in post_order(function) if isinstance(e, Call) and any(id(a) in ids for a in e.args)]


def refuse_constant(mark: Call, values: Array, numbers: Sequence[Array], main: Function) -> None:
    """Raise where values that differ are one number in bytes: scale, least and largest step leave a constant layer."""
    if values.size == 0 or values.min() == values.max():
        return
    scale, least, largest = numbers
    steps = np.clip(np.rint(values / scale), least, largest)
    if steps.min() == steps.max():
        what = "weights" if mark.attrs.kind == QAnnotateKind.WEIGHT else "data"
        layers = layers_of(main)
        number = next(n for n, layer in enumerate(layers) if any(a is mark for a in layer.args))
        message = f"quantize: bytes leave a constant of the {what} of layer {number}, {layers[number].op.name}"
        message += f" (from {values.min():g} to {values.max():g}, in steps of {np.max(scale):g})"
        hint = "give a dataset and take another calibrate_mode or method, or keep the layer in float"
        raise ConfigError(message, span=mark.span, hint=hint)


def collect_stats(mod: IRModule, dataset: Dataset, chunk_by: int = -1) -> Iterable[list[Array]]:
    """What the annotated values of a module are for a dataset: lists of `chunk_by` arrays, of all by default."""
    marks = marks_of(_main(mod))
    size = chunk_by if chunk_by > 0 else max(len(marks), 1)
    rows = list(dataset)
    for start in range(0, len(marks), size):
        yield sampled(mod, [mark.args[0] for mark in marks[start : start + size]], rows)


def sampled(module: IRModule, values: Sequence[Expr], rows: Rows, target: Target | str | None = None) -> list[Array]:
    """The values for every row, in float: without the rounding that the marks stand for."""
    main = _main(module)
    plain: dict[int, Expr] = {}
    for expr in post_order(main):
        rebuilt = map_children(expr, lambda child: plain.get(id(child), child))
        plain[id(expr)] = rebuilt.args[0] if isinstance(rebuilt, Call) and rebuilt.op is simulated_quantize else rebuilt
    outputs = Tuple(tuple(plain.get(id(value), value) for value in values))
    run = create_executor(
        "graph",
        mod=with_main(module, Function(main.params, outputs)),
        target=target or Target.current() or "llvm",
    ).evaluate()
    results = [run(**of_inputs(main, row)) for row in rows]
    return [np.concatenate([np.asarray(r[i].numpy()).ravel() for r in results]) for i in range(len(values))]


def of_inputs(main: Function, row: Mapping[str, object]) -> dict[str, Array]:
    """A row's arrays in the types of the inputs."""
    result: dict[str, Array] = {}
    for param in main.params:
        name = param.name_hint
        if name not in row:
            raise ConfigError(f"quantize: the dataset has no {name!r}", hint=f"it has {', '.join(map(str, row))}")
        value = row[name]
        array = array_of(value, f"quantize: the input {name!r}")
        result[name] = array.astype(str(getattr(param.checked_type, "dtype", array.dtype)))
    return result
