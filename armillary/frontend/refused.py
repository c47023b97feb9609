"""Importers that Relay-era scripts may name and that are not here: each says so, and how to get there through ONNX.

In: whatever the old importer took, or the suffix of a file. Out: always an UnsupportedError with the export command of
that framework.
Invariant: no importer is listed both here and as working in `frontend/__init__.py`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import NoReturn

from armillary.errors import Span, UnsupportedError
from armillary.frontend.formats import format_of

_EXPORT = {
    "caffe": "pip install caffe2onnx; python -m caffe2onnx.convert --prototxt NET --onnx model.onnx",
    "caffe2": "export with onnx's caffe2 converter",
    "coreml": "export the original network to ONNX",
    "oneflow": "oneflow_onnx.convert_to_onnx_and_check(model, onnx_model_path='model.onnx')",
    "paddle": "paddle2onnx --model_dir DIR --save_file model.onnx",
    "weights": "it holds no network; load it in the framework that trained it, and export that to ONNX",
    "scikit-learn": "skl2onnx.to_onnx(model, example_inputs), and write what it returns",
    "tensorrt": "compile the ONNX file that the engine was built from",
}

_SUFFIXES = {  # of files that people try: which framework wrote them
    ".mlmodel": "coreml",
    ".mlpackage": "coreml",
    ".caffemodel": "caffe",
    ".prototxt": "caffe",
    ".pdmodel": "paddle",
    ".safetensors": "weights",
    ".gguf": "weights",
    ".ckpt": "weights",
    ".npz": "weights",
    ".params": "weights",
    ".joblib": "scikit-learn",
    ".pkl": "scikit-learn",
    ".engine": "tensorrt",
    ".plan": "tensorrt",
}


def refuse_file(path: str) -> None:
    """An UnsupportedError for a file that another importer reads, or none; nothing for any other file."""
    suffix = pathlib.PurePath(path).suffix.lower()
    name, form = _SUFFIXES.get(suffix), format_of(path)
    if form is not None and form.name != "onnx":
        raise UnsupportedError(f"a {suffix} file", span=Span(path), hint=f"{form.importer} reads it, or armc compile")
    if name == "weights":
        raise UnsupportedError("a file of weights", span=Span(path), hint=_EXPORT[name])
    if name is not None:
        raise UnsupportedError(
            f"a {name} file: importing {name} models directly is not supported",
            span=Span(path),
            hint=f"export to ONNX first: {_EXPORT[name]}",
        )


def _refuser(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_options: object) -> NoReturn:  # the old importers' own arguments
        raise UnsupportedError(
            f"importing {name} models directly is not supported",
            hint=f"export to ONNX first ({_EXPORT[name]}), then relay.frontend.from_onnx",
        )

    refuse.__name__ = refuse.__qualname__ = f"from_{name}"
    refuse.__doc__ = f"Refuse a {name} model and say how to export it to ONNX."
    return refuse


_FILES_ONLY = ("weights", "scikit-learn", "tensorrt")  # there was no importer of that name
globals().update({f"from_{name}": _refuser(name) for name in _EXPORT if name not in _FILES_ONLY})
