"""Small models whose sizes are large: what compiling one may take.

In: a seed. Out: a graph_check.Outcome: `agrees` where the model compiled, `refused` for an ArmillaryError, `error` for
anything else, for more than 2 GB of memory, and for more than 60 s of processor time. Invariant: the model has less
than 10 KB (armillary/budgets.py); it is compiled in a process of its own, of which the system says what it took.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable

import numpy as np
import onnx_draw
from graph_check import Outcome
from onnx import AttributeProto, ModelProto, TensorProto, numpy_helper
from onnx_check import plain

from armillary.driver.build import build
from armillary.errors import ArmillaryError, InternalError
from armillary.frontend import from_onnx
from armillary.transform import PassContext

LARGEST, SECONDS, MEMORY = 10_000, 60.0, 2 << 30  # bytes of a model; what it may take
_FACTORS = (8, 64, 1000, 4096, 10**5, 10**6, 10**8)
_END, _FEW = 1 << 62, 16  # elements of a constant that may say a shape


def _times(value: int, factor: int) -> int:
    return min(_END, max(1, abs(value)) * factor)


def _places(model: ModelProto) -> list[Callable[[int, random.Random], None]]:
    """What multiplies one number of a model, for each of its sizes."""
    found: list[Callable[[int, random.Random], None]] = []

    def of_list(values: object) -> Callable[[int, random.Random], None]:
        def change(factor: int, rng: random.Random) -> None:
            place = rng.randrange(len(values))  # type: ignore[arg-type]
            values[place] = _times(values[place], factor)  # type: ignore[index]

        return change

    def of_field(owner: object, name: str) -> Callable[[int, random.Random], None]:
        return lambda factor, _: setattr(owner, name, _times(getattr(owner, name), factor))

    def of_tensor(tensor: TensorProto) -> Callable[[int, random.Random], None]:
        def change(factor: int, rng: random.Random) -> None:
            values = numpy_helper.to_array(tensor).copy()
            flat, place = values.reshape(-1), rng.randrange(values.size)
            flat[place] = min(_times(int(flat[place]), factor), np.iinfo(values.dtype).max)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

        return change

    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        found += [of_field(dim, "dim_value") for dim in dims if dim.HasField("dim_value")]
    for tensor in model.graph.initializer:
        is_shape = tensor.data_type in (TensorProto.INT32, TensorProto.INT64)
        if is_shape and 0 < int(np.prod(tensor.dims, dtype=np.int64)) <= _FEW:
            found.append(of_tensor(tensor))
    for node in model.graph.node:
        found += [of_field(a, "i") for a in node.attribute if a.type == AttributeProto.INT]
        found += [of_list(a.ints) for a in node.attribute if a.type == AttributeProto.INTS and a.ints]
    return found


def grown_model(seed: int) -> ModelProto | None:
    """A drawn model, one to three of whose sizes are multiplied; None if there is none, or it is no small model."""
    rng, model = random.Random(seed), ModelProto()
    model.CopyFrom(onnx_draw.generate(seed).model)
    places = _places(model)
    if not places:
        return None
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(places)(rng.choice(_FACTORS), rng)
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model if model.ByteSize() < LARGEST else None


def _compiled(model: ModelProto, level: int, target: str) -> str:
    """What became of a model: a kind, a signature and a detail in lines."""
    try:
        module, params = from_onnx(model)
        with PassContext(opt_level=level):
            build(module, target, params=params)
    except InternalError as error:
        return f"error\nInternalError: {plain(error.message)}\n{error}"
    except ArmillaryError as error:
        return f"refused\n{type(error).__name__}\n{error}"
    except BaseException as error:
        return f"error\n{type(error).__name__}: {plain(str(error))}\n{error!r}"
    return "agrees\ncompiles\n"


def check(seed: int) -> Outcome:
    """Compile the grown model of a seed, and look at what it took."""
    model, rng = grown_model(seed), random.Random(seed + 1)
    if model is None:
        return Outcome("rejected", "no size, or no small model")
    level, target = rng.choice((0, 1, 2, 3, 3)), rng.choice(("llvm", "llvm", "c"))
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS) + 10, int(SECONDS) + 10))
            os.write(theirs, _compiled(model, level, target).encode()[:4000])
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, errors="replace") as stream:
        message = stream.read()
    _, status, took = os.wait4(child, 0)
    seconds, memory = took.ru_utime + took.ru_stime, took.ru_maxrss * 1024
    where = f"level {level}, {target}, {model.ByteSize()} bytes: {seconds:.0f} s, {memory / 2**20:.0f} MB"
    if status or not message:
        return Outcome("error", f"it ended with status {status}", where)
    if seconds > SECONDS or memory > MEMORY:
        return Outcome("error", "more than 60 s or 2 GB", where)
    kind, signature, detail = message.split("\n", 2)
    return Outcome(kind, signature, f"{where}\n{detail}"[:2000])
