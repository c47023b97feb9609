"""Mutated models and damaged packages, made from good ones by a seed, and what loading them must end in.

In: a seed. Out: a graph_check.Outcome: `agrees` where the answer is right, `refused` for an ArmillaryError, and `error`
or `wrong` for anything else. Invariant: a damaged package that loads gives the bytes that the whole one gives; a
mutated model that compiles agrees with whoever else runs it. A crash or a hang is seen by the process that asks.
"""

from __future__ import annotations

import functools
import io
import random
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import onnx
import onnx_check
import onnx_draw
from google.protobuf.message import DecodeError, Message
from graph_check import Outcome
from onnx_kit import Array, Drawn

from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArmillaryError, InternalError
from armillary.frontend import from_onnx
from armillary.runtime import load_module
from armillary.runtime.device import cpu

_ODD = (
    -1,
    0,
    1,
    2,
    3,
    5,
    7,
    255,
    256,
    4096,
    -7,
    1 << 20,
    1 << 31,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
)
_NAMES = ("", "x", "p0", "no such value", "v1", "v2", "é", "a\0b", "n" * 3000, "\n", "__if")
_OPS = (
    "Add",
    "Conv",
    "Reshape",
    "Gather",
    "Concat",
    "Loop",
    "MatMul",
    "Resize",
    "Pad",
    "Frobnicate",
    "",
    "LSTM",
    "Split",
)
_SMALL = 200_000  # bytes of a model that is mutated


# --- models -----------------------------------------------------------------------------------------------------------


def mutated_model(seed: int) -> tuple[bytes, dict[str, Array]]:
    """The bytes of a mutated model, and inputs for what it was before."""
    rng = random.Random(seed)
    if rng.random() < 0.15:
        data, inputs = rng.choice([d for d in corpus.good_models().values() if len(d) < _SMALL]), {}
    else:
        make = onnx_draw.generate_window if rng.random() < 0.3 else onnx_draw.generate
        drawn = make(rng.randrange(1 << 40))
        data, inputs = drawn.model.SerializeToString(), drawn.inputs
    if rng.random() < 0.35:
        bad = list(corpus.damaged(data, rng))
        return rng.choice(bad)[1], inputs
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _change_something(model, rng)
    return model.SerializeToString(), inputs


def _messages(message: Message) -> list[Message]:
    found = [message]
    for part in found:
        for field, value in part.ListFields():
            if field.message_type is not None:
                found.extend(value if field.is_repeated else [value])
    return found


def _change_something(model: onnx.ModelProto, rng: random.Random) -> None:
    """One field of one message anywhere in the model."""
    fields = [(m, f) for m in _messages(model) for f, _ in m.ListFields()]
    message, field = rng.choice(fields)
    if not field.is_repeated:
        if field.message_type is not None or rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _other(getattr(message, field.name), field, rng))
        return
    items = getattr(message, field.name)
    kind, place = rng.random(), rng.randrange(len(items))
    if kind < 0.25:
        del items[place]
    elif field.message_type is not None:
        copy = items.add()
        copy.CopyFrom(items[place])
        if kind < 0.6 and len(items) > 2:
            items[place].CopyFrom(items[rng.randrange(len(items))])
    elif kind < 0.4:
        items.append(items[place])
    else:
        items[place] = _other(items[place], field, rng)


def _other(value: Any, field: Any, rng: random.Random) -> Any:
    if isinstance(value, str):
        return rng.choice(_OPS if field.name == "op_type" else _NAMES)
    if isinstance(value, bytes):
        found = bytearray(value)
        for _ in range(rng.choice((1, 4)) if found else 0):
            found[rng.randrange(len(found))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        return bytes(found) if rng.random() < 0.7 else value[: rng.randrange(len(value) + 1)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30, value * 2))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice(sorted(field.enum_type.values_by_number))
    chosen: int = rng.choice((*_ODD, value + 1, value - 1, value * 2))
    narrow = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32)
    if narrow:
        chosen = max(-(1 << 31), min((1 << 31) - 1, chosen))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return min(abs(chosen), (1 << 64) - 1)
    return max(-(1 << 63), min((1 << 63) - 1, chosen))


def check_model(seed: int) -> Outcome:
    """Import, compile, run a mutated model; compare if somebody else runs it too."""
    data, inputs = mutated_model(seed)
    level = random.Random(seed).choice((0, 1, 2, 3))
    try:
        module, _ = from_onnx(data)
        build(module, target="llvm")
    except InternalError as error:
        return Outcome("error", f"InternalError: {onnx_check.plain(error.message)}", f"level 3: {error}"[:2000])
    except ArmillaryError as error:
        return Outcome("refused", type(error).__name__, str(error)[:300])
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {onnx_check.plain(str(error))}", repr(error)[:2000])
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        return Outcome("wrong", "what is no protobuf was accepted", str(error))
    given = _given(model, inputs)
    if given is None:
        return Outcome("agrees", "compiles")
    outcome = onnx_check.check(Drawn(model, given), (level,), "llvm")
    return Outcome("agrees", "compiles") if outcome.kind == "rejected" else outcome


def truth_case(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The mutated model of a seed and inputs for it."""
    data, inputs = mutated_model(seed)
    model = onnx.ModelProto.FromString(data)
    return model, _given(model, inputs) or {}


def _given(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array] | None:
    """Inputs as the mutated model declares them; None where that cannot be said."""
    held = {t.name for t in model.graph.initializer}
    found = {}
    for info in model.graph.input:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if info.name in held:
            continue
        have = inputs.get(info.name)
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        except KeyError:
            return None
        if any(s < 0 for s in shape) or float(np.prod(np.asarray(shape, float))) > 1e7 or dtype.kind not in "fiub":
            return None
        same = have is not None and list(have.shape) == shape and have.dtype == dtype
        found[info.name] = have if same else np.ones(shape, dtype)
    return found


# --- packages ---------------------------------------------------------------------------------------------------------

Good = tuple[str, Path, dict[str, Array], list[Array]]


@functools.cache
def good_packages() -> tuple[Good, ...]:
    """A few packages of each form, with inputs and what they give."""
    folder = Path(tempfile.mkdtemp(prefix="armillary-fuzz-"))
    found = []
    for seed in range(40):
        drawn = onnx_draw.generate(seed)
        try:
            module, params = from_onnx(drawn.model, freeze_params=seed % 2 == 0)
            library = build(module, target="llvm", params=params)
        except ArmillaryError:
            continue
        form = ("so", "tar")[len(found) % 2]
        path = folder / f"m{seed}.{form}"
        library.export_library(str(path))
        found.append((form, path, drawn.inputs, _run(path, drawn.inputs)))
        if len(found) == 9:
            break
    return tuple(found)


def _run(path: Path, inputs: dict[str, Array]) -> list[Array]:
    executor = GraphModule(load_module(str(path))["default"](cpu(0)))
    for name, value in inputs.items():
        executor.set_input(name, value)
    executor.run()
    return [np.array(executor.get_output(i).numpy()) for i in range(executor.get_num_outputs())]


def check_package(seed: int) -> Outcome:
    """Damage a package, load it, run it."""
    rng = random.Random(seed)
    form, good, inputs, wanted = rng.choice(good_packages())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / good.name
        shutil.copy(good, path)
        if form == "tar" and rng.random() < 0.5:
            _damage_member(path, rng)
        else:
            _damage_file(path, rng)
        try:
            got = _run(path, inputs)
        except InternalError as error:
            return Outcome("error", f"InternalError: {onnx_check.plain(error.message)}", f"{form}: {error}"[:2000])
        except ArmillaryError as error:
            return Outcome("refused", type(error).__name__, str(error)[:300])
        except Exception as error:
            return Outcome(
                "error", f"{type(error).__name__}: {onnx_check.plain(str(error))}", f"{form}: {error!r}"[:2000]
            )
    same = len(got) == len(wanted) and all(a.tobytes() == b.tobytes() for a, b in zip(got, wanted))
    return Outcome("agrees") if same else Outcome("wrong", f"a damaged {form} gives another answer", form)


def _damage_file(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    if len(data) < 2:
        path.write_bytes(b"\0\1")
        return
    if rng.random() < 0.4:
        bad = bytearray(data)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(bad))
        return
    path.write_bytes(rng.choice(list(corpus.damaged(data, rng)))[1])


def _damage_member(path: Path, rng: random.Random) -> None:
    """Damage one file inside a tar whose frame stays whole."""
    with tarfile.open(path) as archive:
        parts = {m.name: _read(archive, m) for m in archive.getmembers() if m.isfile()}
    name = rng.choice(sorted(parts))
    parts[name] = rng.choice(list(corpus.damaged(parts[name] or b"\0\0", rng)))[1]
    if rng.random() < 0.1:
        del parts[name]
    with tarfile.open(path, "w") as archive:
        for key, data in parts.items():
            info = tarfile.TarInfo(key)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file is not None else b""


CHECKS: dict[str, Callable[[int], Outcome]] = {"mutated": check_model, "damaged": check_package}
