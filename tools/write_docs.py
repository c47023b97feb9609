"""Write what follows from tables: docs/operators.md (Relay's operators, ONNX's
and ATen's), docs/environment.md, docs/migration.md (names of old scripts), docs/compute_functions.md,
armillary/frontend/onnx/operators.txt and element_types.txt, armillary/relay/operators.txt (which file registers what),
stubs (`tools/stubs.py`) and notebooks of examples (`tools/notebooks.py`).

In: the operator records (`relay/op/`), the import rules of ONNX, `onnx.defs`, `config.SETTINGS`. Out: the files; with
`--check` nothing is written, and the exit code is 1 if a file is stale. Invariant: output is deterministic.

    python tools/write_docs.py
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import onnx  # noqa: E402

from armillary.base.config import SETTINGS  # noqa: E402
from armillary.frontend.darknet.activations import ACTIVATIONS  # noqa: E402
from armillary.frontend.darknet.layers import RULES as DARKNET_RULES  # noqa: E402
from armillary.frontend.keras.rules import OPERATIONS  # noqa: E402
from armillary.frontend.keras.rules import RULES as KERAS_RULES  # noqa: E402
from armillary.frontend.onnx import table as onnx_table  # noqa: E402
from armillary.frontend.onnx.element_types import types_text  # noqa: E402
from armillary.frontend.onnx.signature import table_text  # noqa: E402
from armillary.frontend.pytorch.table import ATEN_RULES  # noqa: E402
from armillary.frontend.tensorflow.node import TENSORFLOW_RULES  # noqa: E402
from armillary.frontend.tflite.node import INTEGER_RULES, TFLITE_RULES  # noqa: E402
from armillary.relay.lazy_registry import is_lowered  # noqa: E402
from armillary.relay.op import OPS, Op  # noqa: E402
from tools import compute_functions, migration, notebooks, stubs  # noqa: E402

NOTE = "<!-- Written by tools/write_docs.py; do not edit. -->\n"
OPERATORS = """
{ops} operators. In Python each is a function of the same name: `nn.conv2d` is `relay.nn.conv2d`. Inputs come first,
then attributes in the order below. `*data` takes a list or tuple of tensors. The kind decides how an operator takes
part in fusion (`relay/op/`). What an operator computes exactly is its `reference`, in the file of `armillary/ops`
that defines it. ONNX operators, with how each is imported or why not, are the second table.
"""
ATEN = """
{rules} operators of ATen, or overloads of them (behind a dot), have a rule in `armillary/frontend/pytorch/rules`;
`from_exported_program`, `from_pytorch` and `torch.compile` share them. Of the others those are imported that PyTorch
decomposes into these; the rest is refused, all of a model's at once. An underscore at the end (in place) needs no rule.
"""
TFLITE = """
{rules} operators of TFLite have a rule in `armillary/frontend/tflite/rules`. Those in *italics* have one on affine
integers, too, whose results have the bits of the interpreter's reference kernels (but for `SUM`, whose reference kernel
is wrong). All that a file needs and that is not here is named at once.
"""
TENSORFLOW = """
{rules} operators of TensorFlow's frozen graphs have a rule in `armillary/frontend/tensorflow/rules`.
"""
KERAS = """
{rules} layers of Keras 2 and 3 have a rule in `armillary/frontend/keras`, beside models in models, `InputLayer` and
these functions and operators between tensors: {operations}. Layers that only training needs are left out of a network.
"""
DARKNET = """
{rules} layers of Darknet are read: {layers}; with these activations: {activations}.
"""
ENVIRONMENT = """
Nothing else is read from the environment by the package itself; Python takes `TMPDIR` for temporary files, `HOME` and
`XDG_CACHE_HOME` for `~/.cache`. Values are read when they are needed, not at import; one that cannot be used is a
`ConfigError` that names the variable. Flags are 0 or 1. The table is `armillary/base/config.py`.
"""


def operators_page() -> str:
    """The operators with their inputs, attributes and kinds; those of back ends are nobody's to write."""
    public = [name for name in sorted(OPS) if not is_lowered(name)]
    lines = [
        "# Operators",
        "",
        "Relay's operators, then [ONNX's](#onnx-operators), [PyTorch's](#pytorch-operators), "
        "[TFLite's](#tflite-operators) and [TensorFlow's](#tensorflow-operators), and the layers of "
        "[Keras](#keras-layers) and [Darknet](#darknet-layers).",
        "",
        "## Relay operators",
        "",
        NOTE + OPERATORS.format(ops=len(public)),
        "| operator | inputs | attributes | kind | meaning |",
        "|---|---|---|---|---|",
        *(_operator_row(OPS[name]) for name in public),
        "",
        *onnx_table.section(),
        *_aten_section(),
        *_tflite_section(),
        *_tensorflow_section(),
        *_keras_section(),
        *_darknet_section(),
    ]
    return "\n".join(lines)


def _aten_section() -> list[str]:
    """The operators of PyTorch that have a rule."""
    names = [name.removeprefix("aten.") for name in sorted(ATEN_RULES)]
    return ["## PyTorch operators", "", ATEN.format(rules=len(names)), *textwrap.wrap(", ".join(names), 118), ""]


def _tflite_section() -> list[str]:
    """The operators of TFLite that have a rule."""
    names = sorted(TFLITE_RULES.keys() | INTEGER_RULES.keys())
    words = [f"*{name}*" if name in INTEGER_RULES else name for name in names]
    return ["## TFLite operators", "", TFLITE.format(rules=len(names)), *textwrap.wrap(", ".join(words), 118), ""]


def _tensorflow_section() -> list[str]:
    """The operators of TensorFlow that have a rule."""
    names = sorted([*TENSORFLOW_RULES, "Const", "Placeholder"])
    return [
        "## TensorFlow operators",
        "",
        TENSORFLOW.format(rules=len(names)),
        *textwrap.wrap(", ".join(names), 118),
        "",
    ]


def _keras_section() -> list[str]:
    """The layers of Keras that are read."""
    about = KERAS.format(rules=len(KERAS_RULES), operations=", ".join(sorted(OPERATIONS)))
    about = "\n".join(textwrap.wrap(about, 118))
    return ["## Keras layers", "", about, "", *textwrap.wrap(", ".join(sorted(KERAS_RULES)), 118), ""]


def _darknet_section() -> list[str]:
    """The layers and activations of Darknet that are read."""
    about = DARKNET.format(
        rules=len(DARKNET_RULES), layers=", ".join(sorted(DARKNET_RULES)), activations=", ".join(sorted(ACTIVATIONS))
    )
    return ["## Darknet layers", "", *textwrap.wrap(about.strip(), 118), ""]


def _operator_row(op: Op) -> str:
    inputs = ", ".join(op.inputs) or "none"
    return f"| `{op.name}` | {inputs} | {_attributes(op)} | {op.kind.name.lower()} | {_cell(op.doc)} |"


def _attributes(op: Op) -> str:
    if op.attrs_class is None:
        return ""
    parts = []
    for field in dataclasses.fields(op.attrs_class):
        has_default = field.default is not dataclasses.MISSING
        parts.append(f"`{field.name}={field.default!r}`" if has_default else f"`{field.name}`")
    return _cell(", ".join(parts))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def environment_page() -> str:
    """The environment variables that the package reads."""
    lines = [
        "# Environment variables",
        "",
        NOTE + ENVIRONMENT,
        "| variable | default | what it does |",
        "|---|---|---|",
        *(f"| `{row.name}` | {row.shown} | {_cell(row.doc)} |" for row in SETTINGS.values()),
        "",
    ]
    return "\n".join(lines)


def signatures() -> str:
    """What the installed onnx package says of every version of every operator."""
    return table_text(onnx.defs.get_all_schemas_with_history(), onnx.defs.onnx_opset_version())


def element_types() -> str:
    """What the installed onnx package says of the types of every operator's inputs."""
    return types_text(onnx.defs.get_all_schemas_with_history())


def operator_files() -> str:
    """Which file registers what; a process of its own sees operators being registered."""
    command = [sys.executable, str(ROOT / "tools" / "operator_files.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


PAGES = {
    "docs/migration.md": migration.page,
    "docs/compute_functions.md": compute_functions.page,
    "docs/operators.md": operators_page,
    "docs/environment.md": environment_page,
    "armillary/frontend/onnx/operators.txt": signatures,
    "armillary/frontend/onnx/element_types.txt": element_types,
    "armillary/relay/operators.txt": operator_files,
    **stubs.stubs(),
    **notebooks.notebooks(ROOT),
}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description="Write the generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path, text = ROOT / name, page()
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, "utf-8")
    for name in stale:
        print(f"{name} {'is stale: run python tools/write_docs.py' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
