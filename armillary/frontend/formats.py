"""The files that models come in: what each form is called, the suffixes of its files, and what reads it.

In: the name of a file, or of a form (`armc compile --model-format keras`). Out: the form, or why there is none.
Invariant: who wants to know which files are read asks this table: the command line, `tvmc.load`, and `from_onnx` for a
hint.
"""

from __future__ import annotations

from pathlib import Path

from armillary.base.record import record
from armillary.errors import ConfigError, Span, UnsupportedError


@record
class ModelFormat:
    """A form of models: its name on the command line, the suffixes of its files (the usual one first), its importer."""

    name: str
    suffixes: tuple[str, ...]
    importer: str


FORMATS = {
    row.name: row
    for row in (
        ModelFormat("onnx", (".onnx",), "relay.frontend.from_onnx"),
        ModelFormat("keras", (".h5", ".keras"), "relay.frontend.from_keras"),
        ModelFormat("mxnet", (".json",), "relay.frontend.from_mxnet"),
        ModelFormat("relay", (".relay", ".txt"), "relay.parse"),
        ModelFormat(
            "pytorch", (".pt2", ".pt", ".pth"), "relay.frontend.from_exported_program(torch.export.load(FILE))"
        ),
        ModelFormat("tflite", (".tflite",), "relay.frontend.from_tflite"),
        ModelFormat("pb", (".pb",), "relay.frontend.from_tensorflow"),
        ModelFormat("darknet", (".cfg", ".weights"), "relay.frontend.from_darknet"),
    )
}
MODEL_FILES = f"the model: {', '.join(suffix for row in FORMATS.values() for suffix in row.suffixes)}"

EXPORT = {  # of frameworks that are not read: the way to ONNX
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


def format_of(path: str) -> ModelFormat | None:
    """The form of a file, by its suffix; None where that does not tell."""
    suffix = Path(path).suffix.lower()
    return next((row for row in FORMATS.values() if suffix in row.suffixes), None)


def format_named(name: str) -> ModelFormat:
    """The form of that name. Raises ConfigError for one that there is not."""
    if name not in FORMATS:
        raise ConfigError(f"there is no form {name!r} of models", hint=f"it may be any of {', '.join(FORMATS)}")
    return FORMATS[name]


def refuse_file(path: str) -> None:
    """An UnsupportedError for a file that another importer reads, or none; nothing for any other file."""
    suffix = Path(path).suffix.lower()
    name, form = _SUFFIXES.get(suffix), format_of(path)
    if form is not None and form.name != "onnx":
        raise UnsupportedError(f"a {suffix} file", span=Span(path), hint=f"{form.importer} reads it, or armc compile")
    if name == "weights":
        raise UnsupportedError("a file of weights", span=Span(path), hint=EXPORT[name])
    if name is not None:
        raise UnsupportedError(
            f"a {name} file: importing {name} models directly is not supported",
            span=Span(path),
            hint=f"export to ONNX first: {EXPORT[name]}",
        )
