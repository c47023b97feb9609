"""Files of PyTorch: programs of `torch.export.save` (.pt2), modules of `torch.jit.save` (.pt, .pth).

In: a path. Out: `(IRModule, params)`. Invariant: nothing that a file says is run. A .pt2 is an archive whose weights
are plain bytes; PyTorch also reads Python objects (pickle), compiled libraries and expressions in Python out of one, so
the archive is checked before PyTorch sees it, and what may run is refused. TorchScript's own reader makes no Python
objects. A file of `torch.save`, which is a pickle, is refused.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence

from armillary.base.aliases import Array
from armillary.base.files import MOST_BYTES
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.pytorch.entry import from_exported_program, from_pytorch
from armillary.ir import IRModule

_EXPORT = 'torch.export.save(torch.export.export(model.eval(), example_inputs), "net.pt2")'
_OBJECTS = "Python objects in place of tensors are not read"
_SIZE = re.compile(r"[us]\d+|zuf\d+|\d+(\.\d+)?(e[-+]?\d+)?")  # a size that is open, or a number
_WORDS = frozenset(  # functions of sizes as torch.utils._sympy names them, and what sympy says of a symbol
    re.findall(
        r"\w+",
        """
        Abs Add And CeilToInt CleanDiv Eq Equality False Float FloatPow FloatTrueDiv FloorDiv FloorToInt Ge
        GreaterThan Gt Identity IntTrueDiv Integer IsNonOverlappingAndDenseIndicator Le LessThan Lt Max Min
        Mod ModularIndexing Mul Ne Not Or Piecewise Pow PowByNatural PythonMod Rational RoundDecimal
        RoundToInt StrictGreaterThan StrictLessThan Symbol ToFloat True TruncToFloat TruncToInt Unequality
        Where ceiling even false finite floor int_oo integer max min negative nonnegative nonpositive
        nonzero odd oo positive precision real sqrt true zero
        """,
    )
)


def from_torch_file(path: str, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[IRModule, dict[str, Array]]:
    """Import a program or a module of TorchScript; `shapes` has the shapes of the inputs of a module, in their order.

    Raises ModelError for a damaged file and for a module without shapes, UnsupportedError for what may run code.
    """
    try:
        import torch
    except ImportError:
        hint = "pip install torch, or export the model to ONNX where it is"
        raise UnsupportedError("reading files of PyTorch needs torch", span=Span(path), hint=hint) from None
    if _is_program(path):
        return from_exported_program(_read(torch.export.load, path), shapes)
    module = _read(torch.jit.load, path)
    if not shapes:
        hint = '--input-shapes "x:[1,3,224,224]", the inputs in their order; a program of torch.export knows its shapes'
        raise ModelError("a module of TorchScript does not say the shapes of its inputs", span=Span(path), hint=hint)
    return from_pytorch(module, [(name, tuple(shape)) for name, shape in shapes.items()])


def _read(load: object, path: str) -> object:
    """What PyTorch reads from the file; ModelError in its words where it does not."""
    assert callable(load)
    try:
        result: object = load(path)
    except Exception as error:  # PyTorch's readers raise RuntimeError, KeyError, AssertionError and others
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"PyTorch cannot read the file: {lines[0]}", span=Span(path), hint=_EXPORT) from None
    return result


def _is_program(path: str) -> bool:
    """Whether it is an archive of torch.export, which has been checked; False for one of TorchScript."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if any(name.endswith("/data.pkl") and name.count("/") == 1 for name in names):
                _refuse_pickle(path, names)
                return False
            _check_program(path, archive)
            return True
    except (OSError, zipfile.BadZipFile) as error:
        hint = f"a file of torch.save has no network: {_EXPORT}"
        raise ModelError(f"no archive of PyTorch: {error}", span=Span(path), hint=hint) from None


def _refuse_pickle(path: str, names: Sequence[str]) -> None:
    """UnsupportedError for what `torch.save` wrote: TorchScript has its code beside the data."""
    if not any("/code/" in name for name in names):
        raise UnsupportedError(
            "a file of torch.save: it holds weights or a pickled object, and no network", span=Span(path), hint=_EXPORT
        )


def _check_program(path: str, archive: zipfile.ZipFile) -> None:
    """UnsupportedError where reading the archive would run what it says."""
    for entry in archive.infolist():
        name = entry.filename.partition("/")[2]
        if name.startswith("data/aotinductor/"):
            raise UnsupportedError("the archive has compiled code", span=Span(path), hint=_EXPORT)
        if re.match(r"data/constants/(custom|opaque)_obj", name) or re.match(r"data/(weights|constants)/.*\.pt$", name):
            raise UnsupportedError(f"{name}: {_OBJECTS}", span=Span(path), hint=_EXPORT)
        is_sample = name.startswith("data/sample_inputs/")
        if not (name.endswith(".json") or is_sample):
            continue
        if entry.file_size > MOST_BYTES:
            raise ModelError(f"{name} is too large: at most {MOST_BYTES} bytes are read", span=Span(path))
        if is_sample:
            _check_tensors(path, name, archive.read(entry))
            continue
        try:
            content = json.loads(archive.read(entry))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{name} is damaged: {error}", span=Span(path)) from None
        for key, value in _entries(content):
            if key in ("expr_str", "as_expr") and isinstance(value, str):  # which PyTorch has sympy evaluate
                _check_expression(path, value)
            if key == "use_pickle" and value:
                raise UnsupportedError(f"{name}: {_OBJECTS}", span=Span(path), hint=_EXPORT)


def _check_tensors(path: str, name: str, data: bytes) -> None:
    """UnsupportedError unless they are tensors: PyTorch unpickles whatever else the example inputs are."""
    import torch

    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except pickle.UnpicklingError:
        raise UnsupportedError(f"{name}: {_OBJECTS}", span=Span(path), hint=_EXPORT) from None
    except (RuntimeError, ValueError, EOFError) as error:
        raise ModelError(f"{name} is damaged: {error}", span=Span(path)) from None


def _entries(content: object) -> Iterator[tuple[str, object]]:
    """All names with their values in JSON."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from item.items()
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _check_expression(path: str, text: str) -> None:
    words = re.findall(r"[\w.]+", text)
    known = all(word in _WORDS or _SIZE.fullmatch(word) for word in words)
    if not known or not re.fullmatch(r"[\w\s.+\-*/%(),<>=&|~']*", text):
        raise UnsupportedError(f"an expression that is none of sizes: {text[:80]!r}", span=Span(path), hint=_EXPORT)
