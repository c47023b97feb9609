"""The page of the compute library's functions: what each does, its arguments, and what it was compared with.

In: the table of functions (`compute/functions/signatures.py`), and the stored outputs of Arm Compute Library
(`tests/compute/acl_oracle/outputs.json.xz`). Out: the text of docs/compute_functions.md, for tools/write_docs.py.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from armillary.compute.functions.arguments import Arguments
from armillary.compute.functions.signature import Argument, Row
from armillary.compute.functions.signatures import ROWS

STORED = Path(__file__).parent.parent / "tests" / "compute" / "acl_oracle" / "outputs.json.xz"
OTHER_ORACLES = {"CannyEdge": "OpenCV: 50"}
HEAD = """# Functions of the compute library

<!-- Written by tools/write_docs.py; do not edit. -->

Each is there on the processor (`NE…`) and on OpenCL devices (`CL…`) with the same arguments and results. The arguments
are those of `configure`: of tensors the types, the shape behind "as", what may be None with "?"; numbers with what they
may be. `validate` takes the tensors' information in their place, without those in brackets. The last column tells on
how many random cases a function is compared with Arm Compute Library 20.08 (layers with images in both layouts,
convolutions of bytes with a scale for each channel, too). The cases are the same on both sides
([processor](../tests/compute/test_acl_oracle.py), [OpenCL](../tests/compute/test_opencl_oracle.py)): some in every run,
all in the slow tests.

{total} functions.

| Function | Arguments | What it does | compared on |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    stored = json.loads(lzma.decompress(STORED.read_bytes()))
    return HEAD.format(total=len(ROWS)) + "".join(_row(ROWS[name], stored) for name in sorted(ROWS))


def _row(row: Row, stored: dict[str, list[object]]) -> str:
    arguments = Arguments(row, "configure")
    shown = ", ".join(_argument(each, arguments) for each in row.arguments if each.name != "constant_border_value")
    cells = [
        f"`{row.name}`",
        shown.replace("border_mode BorderMode = UNDEFINED", "border"),
        row.doc.replace("|", "\\|"),
    ]
    return f"| {' | '.join([*cells, _cases(row.name, stored) or OTHER_ORACLES.get(row.name, 'nothing')])} |\n"


def _argument(each: Argument, arguments: Arguments) -> str:
    """An argument as the page has it."""
    kind = arguments.annotation(each).removesuffix(" | None").replace("|", "\\|")
    if kind == "Tensor":
        kind = " or ".join({"F": "F32 or F16", "Q": "QASYMM8", "T": ""}.get(name, name) for name in each.kinds)
    words = [each.name + "?" * each.may_be_none, kind, f"as {each.shaped_as}" * bool(each.shaped_as)]
    words.append(each.values.replace("..", " to ").removesuffix(" to ") + " or more" * each.values.endswith(".."))
    words.append(f"= {each.default}" * bool(each.default))
    text = " ".join(filter(None, words))
    return text if each.is_validated else f"[{text}]"


def _cases(name: str, stored: dict[str, list[object]]) -> str:
    """Cases of the function, and of what its keys say behind its name."""
    cases = {
        key.removeprefix(f"NE{name}").strip(): len(v) for key, v in stored.items() if key.split()[0] == f"NE{name}"
    }
    return ", ".join(f"{key}: {count}" if key else str(count) for key, count in cases.items())
