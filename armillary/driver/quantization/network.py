"""`armillary.quantize(module, params, data)`: a float network in 8-bit integers, with what it loses told by layer.

In: a module of any frontend, values of its parameters, a few inputs. Out: a `Quantized`: the module with quantise and
dequantise around what convolutions and products read (relay.build computes in integers between them, to_onnx writes
them), and a row for each layer. Invariant: data are uint8 by one scale and zero point, weights int8 by a scale for each
output channel; layers stay float, the most sensitive first, until the results are within `error`; what rounding moves
the mean of a layer by is added back (bias.py).

How it measures: one float build of the simulation whose scales are inputs. A layer is switched off by a scale of
millionths of its range, so no layer costs a compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.driver.build import build
from armillary.driver.quantization.annotate import QAnnotateKind, annotate
from armillary.driver.quantization.bias import Means, correction, means_along
from armillary.driver.quantization.calibrate import (
    Rows,
    channel_scale,
    layers_of,
    marks_of,
    of_inputs,
    refuse_constant,
    sampled,
)
from armillary.driver.quantization.config import qconfig
from armillary.driver.quantization.equalize import equalized, smoothed
from armillary.driver.quantization.quantize import prerequisite_optimize
from armillary.driver.quantization.realize import in_bytes
from armillary.driver.quantization.thresholds import LIMITS
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.elementwise.broadcast import add
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.walk import map_children, post_order
from armillary.runtime.device import cpu
from armillary.runtime.executor import GraphExecutor
from armillary.transform import PassContext

_STEPS = 255.0
_FINE = np.float32(2.0**22)  # steps of a range that is switched off: what rounding leaves is float32's own
Numbers = tuple[Array, Array, Array]  # scale, least and largest step


@record
class Layer:
    """One product: its operator, the shape of its result, what it alone adds to the error, and what it computes in.

    `error` is relative to the root mean square of the network's results, of weights alone to that of the layer's own;
    NaN where nobody measured it.
    """

    name: str
    shape: tuple[int, ...]
    error: float
    kind: str  # "int8" or "float32"; of weights alone "int4", too


@record
class Quantized:
    """A quantised network: the module without parameters, its layers in order, and the error of all together."""

    module: IRModule
    layers: tuple[Layer, ...]
    error: float
    weights_only: bool = False

    def summary(self) -> str:
        """A line for each layer, then how many of them are in integers and the error."""
        rows = [f"{n:4} {r.name:16} {r.shape!s:24} {r.kind:8} {r.error:.2e}" for n, r in enumerate(self.layers)]
        kind = next((row.kind for row in self.layers if row.kind != "float32"), "int8")
        count = sum(row.kind == kind for row in self.layers)
        what = (
            f"{count} of {len(rows)} layers in int8"
            if not self.weights_only
            else f"weights of {count} of {len(rows)} layers in {kind}"
        )
        return "\n".join([*rows, f"{what}, error {self.error:.2e}"])


@boundary("quantize", arguments=True)
def quantize(
    module: IRModule,
    params: Mapping[str, object] | None = None,
    data: Iterable[Mapping[str, object]] = (),
    *,
    method: str = "mse",
    error: float = 0.0,
    keep: Sequence[int] = (),
    smooth: float = 0.0,
    equalize: bool = True,
    correct: bool = True,
) -> Quantized:
    """Quantise convolutions, dense layers and batched products to 8 bits.

    `data` are dictionaries from inputs to arrays, a few of what the network will see; they give ranges by `method`:
    "minmax", "percentile", "entropy" (Kullback and Leibler) or "mse" (the least mean square error). `keep` are numbers
    of layers that stay float, in the order of the summary. With `error` above 0, further ones do, the most sensitive
    first, until the root mean square of the results' error is below that part of the results'. `equalize` evens out
    the channels between convolutions, `smooth` (from 0 to 1; 0: not at all) moves so much of the outliers of dense
    layers' data into their weights (equalize.py), `correct` adds what rounding takes from layers' means (bias.py).
    Raises ConfigError for no data, an unknown method, and a layer of which 8 bits leave a constant.
    """
    rows = list(data)
    if method not in LIMITS or not rows or not 0 <= error < 1 or not 0 <= smooth <= 1:
        got = f"method {method!r}, {len(rows)} inputs, error {error!r}, smooth {smooth!r}"
        hint = f"method: {', '.join(LIMITS)}; data: [{{'x': array}}, …]; error, smooth: from 0 to 1, as in 0.02"
        raise ConfigError(f"quantize: {got}", hint=hint)
    ready = prerequisite_optimize(module, params)
    ready = equalized(ready) if equalize else ready
    ready = smoothed(ready, rows, smooth) if smooth else ready
    with qconfig(skip_conv_layers=[], skip_dense_layer=False):
        marked = annotate()(ready)
    network = _Network(marked, rows, method, correct)
    wrong = [n for n in keep if not 0 <= n < len(network.layers)]
    if wrong:
        raise ConfigError(f"quantize: keep names layer {wrong[0]}", hint=f"there are {len(network.layers)}")
    return network.chosen(frozenset(keep), error)


class _Network:
    """An annotated network with the numbers of its marks."""

    def __init__(self, marked: IRModule, rows: Rows, method: str, is_corrected: bool) -> None:
        self.marked, self.rows = marked, rows
        self.main: Function = marked["main"]
        self.marks = marks_of(self.main)
        self.layers = layers_of(self.main)
        if not self.layers:
            raise ConfigError("quantize: there is no float32 convolution or product in the network")
        self.means: dict[int, Means] = {}  # by layer: of the data that it reads
        self.numbers = self._numbers(method)
        self.shifts = self._shifts() if is_corrected else {}
        self.run, self.names = self._simulation()
        self.wanted = self._results(frozenset(range(len(self.layers))))

    def _numbers(self, method: str) -> dict[int, Numbers]:
        result: dict[int, Numbers] = {}
        data = [mark for mark in self.marks if mark.attrs.kind != QAnnotateKind.WEIGHT]
        for mark, values in zip(data, sampled(self.marked, [m.args[0] for m in data], self.rows), strict=True):
            result[id(mark)] = _of_range(*LIMITS[method](values))
            refuse_constant(mark, values, result[id(mark)], self.main)
            rounded = _rounded(values, result[id(mark)])
            for number, layer in enumerate(self.layers):
                means = means_along(layer, values, rounded) if layer.args[0] is mark else None
                if means is not None:
                    self.means[number] = means
        for mark in self.marks:
            if mark.attrs.kind == QAnnotateKind.WEIGHT:
                scale = channel_scale(mark, self.main)
                result[id(mark)] = scale, np.asarray(np.float32(-127)), np.asarray(np.float32(127))
                refuse_constant(mark, mark.args[0].data, result[id(mark)], self.main)  # type: ignore[attr-defined]
        return result

    def _shifts(self) -> dict[int, Array]:
        """What each layer's results lack on average, by its number."""
        result = {}
        for number, means in self.means.items():
            layer = self.layers[number]
            mark = layer.args[1]
            weight = mark.args[0].data if isinstance(mark, Call) and isinstance(mark.args[0], Constant) else None
            if weight is not None:
                values = np.asarray(weight, np.float32)
                result[number] = correction(layer, means, values, _rounded(values, self.numbers[id(mark)]))
        return result

    def _simulation(self) -> tuple[Callable[[Mapping[str, Array]], list[Array]], dict[int, list[str]]]:
        """The network in float with the numbers of marks, and what is added to layers, as inputs."""
        names: dict[int, list[str]] = {}
        extra: list[Var] = []

        def opened(mark: Call, call: Call) -> Expr:
            parts = [
                Var(f"mark{len(names)}_{k}", Constant(n).checked_type) for k, n in enumerate(self.numbers[id(mark)])
            ]
            names[id(mark)] = [v.name_hint for v in parts]
            extra.extend(parts)
            return Call(call.op, (call.args[0], *parts), call.attrs, call.span)

        def shifted(number: int, layer: Expr) -> Expr:
            extra.append(Var(f"shift{number}", Constant(self.shifts[number]).checked_type))
            return add(layer, extra[-1])

        body = self._rewritten(opened, lambda _: True, shifted)
        module = IRModule({"main": Function((*self.main.params, *extra), body.body)})
        with PassContext(opt_level=3):
            executor = build(module, target="llvm")["default"](cpu())
        return partial(_run, executor), names

    def _rewritten(
        self,
        mark: Callable[[Call, Call], Expr],
        is_chosen: Callable[[int], bool],
        shifted: Callable[[int, Expr], Expr],
    ) -> Function:
        """The main function with marks replaced, or dropped from layers that are not chosen; others are shifted."""
        ids, numbers = {id(m) for m in self.marks}, {id(c): n for n, c in enumerate(self.layers)}
        new: dict[int, Expr] = {}
        for expr in post_order(self.main):
            if id(expr) in numbers and isinstance(expr, Call) and not is_chosen(numbers[id(expr)]):
                args = [a.args[0] if isinstance(a, Call) and id(a) in ids else a for a in expr.args]
                rebuilt: Expr = Call(expr.op, tuple(new.get(id(a), a) for a in args), expr.attrs, expr.span)
            else:
                rebuilt = map_children(expr, lambda child: new.get(id(child), child))
            if id(expr) in ids and isinstance(rebuilt, Call) and isinstance(expr, Call):
                rebuilt = mark(expr, rebuilt)
            number = numbers.get(id(expr), -1)
            if number in self.shifts and is_chosen(number):
                rebuilt = shifted(number, rebuilt)
            new[id(expr)] = rebuilt
        main = new[id(self.main)]
        assert isinstance(main, Function), "a walk keeps a function one"
        return main

    def _results(self, floats: frozenset[int]) -> list[list[Array]]:
        """The network's results for the inputs, with these layers in float."""
        read = {id(a) for n, layer in enumerate(self.layers) if n not in floats for a in layer.args}
        values: dict[str, Array] = {}
        for mark in self.marks:
            numbers = self.numbers[id(mark)] if id(mark) in read else _switched_off(self.numbers[id(mark)])
            values |= dict(zip(self.names[id(mark)], numbers, strict=True))
        for number, shift in self.shifts.items():
            values[f"shift{number}"] = np.zeros_like(shift) if number in floats else shift
        return [self.run({**of_inputs(self.main, row), **values}) for row in self.rows]

    def error(self, floats: frozenset[int]) -> float:
        """The largest relative root mean square of an output's error, with these layers in float."""
        return relative_error(self._results(floats), self.wanted)

    def chosen(self, floats: frozenset[int], limit: float) -> Quantized:
        """The network with so many layers in float that the error is below the limit."""
        every, least = frozenset(range(len(self.layers))), self.error(floats)
        alone = dict.fromkeys(every, float("nan"))
        if limit and least > limit:
            alone = {n: self.error(every - {n}) for n in every - floats}
            order = sorted(alone, key=lambda n: -alone[n])
            low, high = 0, len(order)  # with `low` more the error is above the limit, with `high` below
            while high - low > 1:
                middle = (low + high) // 2
                if self.error(floats | frozenset(order[:middle])) > limit:
                    low = middle
                else:
                    high = middle
            floats |= frozenset(order[:high])
            least = self.error(floats)
        layers = tuple(
            Layer(c.op.name, c.checked_type.static, alone.get(n, float("nan")), "float32" if n in floats else "int8")  # type: ignore[attr-defined]
            for n, c in enumerate(self.layers)
        )
        return Quantized(self._in_bytes(floats), layers, least)

    def _in_bytes(self, floats: frozenset[int]) -> IRModule:
        def stored(mark: Call, call: Call) -> Expr:
            numbers = tuple(Constant(np.asarray(n, np.float32)) for n in self.numbers[id(mark)])
            return in_bytes(Call(call.op, (call.args[0], *numbers), call.attrs, call.span))

        def shifted(number: int, layer: Expr) -> Expr:
            return add(layer, Constant(self.shifts[number]))

        return IRModule({"main": self._rewritten(stored, lambda n: n not in floats, shifted)})


def relative_error(got: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> float:
    """The largest relative root mean square of an output's error, over all rows."""
    result = 0.0
    for k in range(len(wanted[0])):
        lost = sum(float(((g[k] - w[k]) ** 2).sum()) for g, w in zip(got, wanted, strict=True))
        size = sum(float((w[k] ** 2).sum()) for w in wanted)
        result = max(result, (lost / size) ** 0.5 if size else float(lost > 0))
    return result


def results_of(module: IRModule, rows: Rows) -> list[list[Array]]:
    """What a module without parameters gives for rows of inputs."""
    with PassContext(opt_level=3):
        executor = build(module, target="llvm")["default"](cpu())
    return [_run(executor, of_inputs(module["main"], row)) for row in rows]


def _run(executor: GraphExecutor, values: Mapping[str, Array]) -> list[Array]:
    for name, value in values.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(k).numpy().astype(np.float64) for k in range(executor.get_num_outputs())]


def _of_range(low: float, high: float) -> Numbers:
    """The steps of a byte over a range, which 0 is a step of."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / _STEPS if high > low else 1.0)
    zero = np.float32(np.clip(np.rint(-low / scale), 0, _STEPS))
    return np.asarray(scale), np.asarray(-zero), np.asarray(np.float32(_STEPS) - zero)


def _rounded(values: Array, numbers: Numbers) -> Array:
    """Values as bytes leave them."""
    scale, least, largest = numbers
    result: Array = np.clip(np.rint(values / scale), least, largest) * scale
    return result


def _switched_off(numbers: Numbers) -> Numbers:
    scale, *_ = numbers
    return scale / np.float32(2.0**14), np.asarray(-_FINE * 8), np.asarray(_FINE * 8)
