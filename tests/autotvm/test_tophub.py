"""Records that come along with the compiler are found for Arm boards, and give way to those that were timed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm import record, tophub
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.driver.build import optimized
from armillary.ir import IRModule
from armillary.target import Target
from armillary.target.cpu import architecture
from armillary.transform import PassContext

LOG = Path(tophub.__file__).with_name("arm_cpu.log")
BOARDS = ["rasp4b64", "rk3399", "rasp3b", "pynq"]  # two of 64 bits, two of 32
PAIRS = list(record.load_from_file(LOG))


def is_of_32_bits(target: Target) -> bool:
    return architecture(target.mtriple) == "arm"


def test_every_record_says_that_it_was_counted() -> None:
    rows = [json.loads(line) for line in LOG.read_text("utf-8").splitlines()]
    assert len(rows) == len(PAIRS) > 2
    for row in rows:
        assert "not timed" in row["counted"]
        assert row["result"][0][0] > 1e4  # instructions: no kernel takes so many seconds


@pytest.mark.parametrize("board", BOARDS)
def test_records_are_found_for_a_board_and_not_for_another_machine(board: str) -> None:
    target = Target(f"llvm -device={board}")
    mine = [inp for inp, _ in PAIRS if is_of_32_bits(inp.target) == is_of_32_bits(target)]
    assert len(mine) > 2
    with autotvm.tophub.context(target) as found:
        for inp in mine:
            config = found.query(target, inp.task.workload)
            assert config is not None and config.entity_map == inp.config.entity_map
    assert not autotvm.tophub.context("llvm -mcpu=x86-64-v3").best_by_targetkey
    assert autotvm.tophub.context({"cpu": f"llvm -device={board}"}).best_by_targetkey


def test_a_build_takes_them_in_their_context() -> None:
    x = relay.var("x", shape=(1, 64, 56, 56))
    w = relay.const(np.random.default_rng(0).standard_normal((128, 64, 3, 3)).astype("float32"))
    function = relay.Function([x], relay.nn.conv2d(x, w, strides=(2, 2), padding=(1, 1)))
    module, target = IRModule.from_expr(function), Target("llvm -device=rasp4b64")
    with PassContext(opt_level=3):
        plain = str(optimized(module, target))
        with autotvm.tophub.context(target):
            tuned = str(optimized(module, target))
    assert "by record" in tuned and "by record" not in plain


def test_a_record_in_seconds_precedes(tmp_path: Path) -> None:
    inp, _ = PAIRS[0]
    space = autotvm.task.create(inp.task.name, inp.task.args, inp.target).config_space
    other = space.get(int(space.valid_indices()[0]))
    line = record.encode(MeasureInput(inp.target, inp.task, other), MeasureResult((3.0,), 0, 4.0, 0.0))
    (tmp_path / "mine.log").write_text(f"{line}\n")
    found = autotvm.tophub.context(inp.target, [tmp_path / "mine.log"]).query(inp.target, inp.task.workload)
    assert found is not None and found.entity_map == other.entity_map
