"""A Darknet network to a Relay module, without Darknet.

In: a `.cfg` file or its text, the `.weights` file or its bytes. Out: the module and its parameters. Invariant: one
input, `data` (n, c, h, w); the outputs are those of TVM's importer: the last layer, then what its boxes are decoded
with, then the detecting layers before it, the nearest first. The files: cfg.py, weights.py; the layers: layers.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.files import MOST_BYTES, MOST_MODEL_BYTES, read_regular
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend.darknet.cfg import Section, read_cfg
from armillary.frontend.darknet.layers import RULES, Layer
from armillary.frontend.darknet.weights import WeightReader
from armillary.frontend.values import shape_of
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, Tuple, Var, var

_DTYPES = ("float32", "float16", "float64")
Shape = Sequence[int]


@boundary("from_darknet", arguments=True)
def from_darknet(
    net: object,  # a path or a text
    shape: Shape | Mapping[str, Shape] | None = None,
    dtype: str = "float32",
    weights: str | os.PathLike[str] | bytes | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a network of Darknet; returns the module and its parameters by name.

    `net` is the path of a `.cfg` file, or its text. `weights` is the path of the `.weights` file, or its bytes; without
    it the file of the same name beside the `.cfg` is read. `shape` is that of the input `data`, (n, c, h, w), as
    numbers or by name; without it, one image of the size that the `.cfg` says. `dtype` is float32, float16 or float64.
    A `yolo` layer gives four outputs: values (n, c, h, w), mask, anchors (`biases`) and the attributes (anchors, c, h,
    w, classes, total) as int32; a `region` layer three: values, anchors, attributes (anchors, c, h, w, classes, coords,
    background). Raises ModelError for damaged files, UnsupportedError, naming them, for layers that are not known.
    """
    if not isinstance(net, str | os.PathLike):
        hint = "from_darknet('net.cfg', weights='net.weights') reads the files itself, without Darknet's library"
        raise ModelError(f"from_darknet takes the path or the text of a .cfg file, got {type(net).__name__}", hint=hint)
    is_text = isinstance(net, str) and "\n" in net
    if isinstance(net, str) and is_text:
        sections = read_cfg(net, "the text")
    else:
        sections = read_cfg(_read(net, MOST_BYTES).decode("utf-8", "replace"), str(net))
    if weights is None and is_text:
        raise ModelError("weights= is wanted with the text of a network", hint="the path or bytes of a .weights file")
    source = Path(net).expanduser().with_suffix(".weights") if weights is None else weights
    if isinstance(source, bytes):
        reader = WeightReader(source, "the weights")
    else:
        reader = WeightReader(_read(source, MOST_MODEL_BYTES), str(source))
    if dtype not in _DTYPES:
        raise UnsupportedError(f"dtype={dtype!r} of a network of Darknet", hint=f"supported: {', '.join(_DTYPES)}")
    return _Importer(sections, reader, shape, dtype).run()


def _read(path: str | os.PathLike[str], most: int) -> bytes:
    try:
        return read_regular(Path(path).expanduser(), most)
    except OSError as error:
        hint = "from_darknet('net.cfg', weights='net.weights')"
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(str(path)), hint=hint) from None


class _Importer:
    def __init__(
        self,
        sections: list[Section],
        weights: WeightReader,
        shape: Shape | Mapping[str, Shape] | None,
        dtype: str,
    ) -> None:
        self.net, self.layers = sections[0], sections[1:]
        self.weights, self.dtype = weights, dtype
        self.input = var("data", shape=self.input_shape(shape), dtype=dtype)
        self.params: dict[str, Array] = {}
        self.variables: list[Var] = []

    def input_shape(self, shape: Shape | Mapping[str, Shape] | None) -> tuple[int, ...]:
        net, shape = self.net, shape or None
        if shape is None and "inputs" in net.options:
            return 1, net.whole("inputs", 0, 1)
        if shape is None:
            return 1, net.whole("channels", 0, 1), net.whole("height", 0, 1), net.whole("width", 0, 1)
        if isinstance(shape, Mapping):
            if set(shape) != {"data"}:
                raise ModelError(f"shape: the one input is 'data', got {', '.join(map(repr, shape)) or 'none'}")
            shape = shape["data"]
        sizes = tuple(shape)
        if len(sizes) not in (2, 4) or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes):
            raise ModelError(f"shape is {sizes}, wanted the sizes of data", hint="shape=(1, 3, 416, 416)")
        return tuple(map(int, sizes))

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        unknown = sorted({section.kind for section in self.layers} - set(RULES))
        if unknown:
            raise UnsupportedError(f"layers of Darknet that are not known: {', '.join(unknown)}", span=self.net.span)
        values: list[Expr] = []
        detections: list[Expr] = []
        for section in self.layers:
            results = self.call(section, values)
            values.append(results[0])
            if len(results) > 1:
                detections = results + detections
        is_detected = bool(detections) and detections[0] is values[-1]
        outputs = detections if is_detected else [values[-1], *detections]
        self.weights.finish(len(self.layers))
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        return IRModule.from_expr(Function((self.input, *self.variables), body)), self.params

    def call(self, section: Section, values: list[Expr]) -> list[Expr]:
        def parameter(item: str, array: Array) -> Expr:
            name = f"{section.kind}{section.number}_{item}"
            with np.errstate(over="ignore"):
                stored = np.ascontiguousarray(array.astype(self.dtype if array.dtype.kind == "f" else array.dtype))
            result = var(name, shape=stored.shape, dtype=str(stored.dtype))
            self.params[name] = stored
            self.variables.append(result)
            return result

        layer = Layer(section, values[-1] if values else self.input, values, self.weights, parameter)
        try:
            result = RULES[section.kind](layer)
            results = result if isinstance(result, list) else [result]
            for value in results:
                shape_of(value)  # types it, so that an error has the layer's name
        except TypeMismatch as error:
            raise TypeMismatch(f"{section.title}: {error.message}", span=section.span, hint=error.hint) from None
        return results
