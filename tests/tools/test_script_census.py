"""The census counts what a script imports and uses, and names what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import script_census

SCRIPT = """
import numpy as np
import tvm
import tvm.relay as relay
from tvm import te, no_such_module
from tvm.contrib import graph_executor as executor
x = te.placeholder((2,))
y = relay.nn.relu(relay.var("x"))
tvm.no_such_name(1), np.zeros(2), tvm.target.Target.current()
executor.GraphModule(None), tvm.relax.build(None)
"""


def test_imports_and_uses_are_counted_and_what_is_missing_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    cell = {"cell_type": "code", "source": ["%matplotlib inline\n", "from tvm import autotvm\n", "autotvm.tuner"]}
    (tmp_path / "notes.ipynb").write_text(json.dumps({"cells": [cell, {"cell_type": "markdown", "source": ["tvm."]}]}))
    (tmp_path / "broken.py").write_text("import tvm\nthis is no Python")
    assert script_census.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 files; import lines found: 4 of 5"
    assert lines[1] == "uses of names found: 6 of 7"
    assert lines[2:] == ["missing imports: no_such_module 1", "missing names: no_such_name 1"]
