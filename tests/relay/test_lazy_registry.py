"""Operators' files are imported by need, and what the list of them says makes no difference but in time."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "armillary" / "relay" / "operators.txt"
LISTED = [key for line in LIST.read_text("utf-8").splitlines() for key in line.split()[1:]]
LOADED = "print(*sorted(n.removeprefix('armillary.ops.') for n in sys.modules if n.startswith('armillary.ops.')))"
NAMES = """from armillary.frontend.onnx.node import ONNX_RULES, from_onnx, onnx_rule
from armillary.relay.op import OPS, Kind, Op, get_op
"""
EMPTY = "from armillary.relay import lazy_registry\nlazy_registry._lines = lambda: ()\n"


def run(code: str) -> str:
    """What a process of its own prints."""
    text = f"import sys\n{NAMES}{code}"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_look_imports_one_file_and_what_it_needs() -> None:
    loaded = run(f"get_op('nn.gelu')\n{LOADED}").split()
    assert "nn.gelu" in loaded
    assert not {"nn.conv", "reduce.sort", "qnn.quantize", "nn.pool"} & set(loaded)


def test_arithmetic_of_expressions_imports_its_operators() -> None:
    code = "from armillary.relay.expr import var\nx = var('x', shape=(2,))\nprint(-(x + 1.0) < x)\n"
    assert "less(" in run(code)


def test_a_look_at_all_finds_what_every_file_registers() -> None:
    rules = sum(":" in key for key in LISTED)
    pytorch = ("aten:", "complex:", "prims:", "quantized_decomposed:", "torchvision:", "transformers:")
    aten = sum(key.startswith(pytorch) for key in LISTED)
    others = sum(key.startswith(("mxnet:", "tensorflow:", "tflite")) for key in LISTED)
    code = "from armillary.frontend.pytorch.table import ATEN_RULES\nprint(len(OPS), len(ONNX_RULES), len(ATEN_RULES))"
    assert run(code).split() == [str(n) for n in (len(LISTED) - rules, rules - aten - others, aten)]


def test_a_key_belongs_to_one_file() -> None:
    assert [key for key, count in Counter(LISTED).items() if count > 1] == []


@pytest.mark.parametrize(
    "look",
    [
        "print(get_op('nn.softmax').name)",
        "print(len(onnx_rule('', 'Conv', 11).__name__) > 0)",
        "from armillary import relay\nprint(relay.nn.conv2d.op, relay.image.resize2d.op, relay.add.op)",
    ],
)
def test_what_the_list_lacks_is_found(look: str) -> None:
    assert run(EMPTY + look) == run(look)


def test_a_file_that_has_gone_is_left_out() -> None:
    code = "get_op('nn.relu')\nprint(any(line.startswith('gone ') for line in lazy_registry._lines()))\n"
    lines = "real = Path.read_text\nPath.read_text = lambda self, *a: 'gone nn.relu\\n' + real(self, *a)\n"
    found = f"from pathlib import Path\nfrom armillary.relay import lazy_registry\n{lines}{code}"
    assert run(found).split() == ["False"]


def test_an_operator_that_exists_cannot_be_defined_before_its_file_is_imported() -> None:
    code = "try:\n    Op('nn.softmax', kind=Kind.REDUCE)\nexcept Exception as error:\n    print(error)\n"
    assert "operator 'nn.softmax' is defined twice" in run(code)


def test_an_import_rule_of_a_script_stands_beside_those_of_the_package() -> None:
    code = "@from_onnx('Relu', since=99)\ndef newer(node): ...\n"
    shown = "print(*(onnx_rule('', 'Relu', opset).__name__ for opset in (14, 99)))"
    assert run(code + shown).split() == ["relu", "newer"]


def test_an_unknown_operator_is_refused_with_near_names() -> None:
    code = "try:\n    get_op('nn.conv')\nexcept Exception as error:\n    print(error)\n"
    assert run(code).split("\n")[:2] == [
        "there is no operator 'nn.conv'",
        "  hint: similar: nn.conv1d, nn.conv2d, nn.conv3d, qnn.conv2d, nn.conv1d_transpose",
    ]
