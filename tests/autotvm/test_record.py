"""Logs hold whole lines whatever happens to the writer; damaged lines are told and left out; the best is found."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import templates

import armillary
from armillary import autotvm, relay
from armillary.autotvm import record
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.errors import ArmillaryError, ArtifactError

OLD = (
    '{"input": ["llvm -keys=cpu -link-params=0 -mcpu=core-avx2", "test/matmul", [64, 64, 64, "float32"], {}], "config":'
    ' {"index": 3, "code_hash": null, "entity": [["tile_y", "sp", [-1, 8]], ["tile_x", "sp", [-1, 1]]]}, "result":'
    ' [[0.002], 0, 1.5, 1600000000.0], "version": 0.2, "tvm_version": "0.8.0"}'
)


def task(n: int = 64) -> autotvm.Task:
    return autotvm.task.create("test/matmul", (n, n, n, "float32"), "llvm")


def pair(index: int, seconds: float, n: int = 64) -> record.Pair:
    of = task(n)
    return MeasureInput(of.target, of, of.config_space.get(index)), MeasureResult((seconds,), 0, 1.0, 2.0)


def test_a_line_says_what_a_reader_of_old_logs_wants_and_more() -> None:
    line = json.loads(record.encode(*pair(3, 0.5)))
    assert line["input"] == ["llvm -keys=cpu -link-params=0", "test/matmul", [64, 64, 64, "float32"], {}]
    assert line["config"]["entity"] == [["tile_y", "sp", [-1, 8]], ["tile_x", "sp", [-1, 1]]]
    assert line["result"] == [[0.5], 0, 1.0, 2.0] and line["version"] == 0.2
    assert line["compiler"].startswith("armillary ") and line["isa"] and line["host"]


def test_an_error_keeps_its_text() -> None:
    given, _ = pair(1, 1.0)
    line = record.encode(given, failed(MeasureErrorNo.RUN_TIMEOUT, "it ran too long", 3.0))
    assert json.loads(line)["result"][:2] == [[1e9], 7]
    found = record.decode(line)
    assert found is not None and found[1].error == "it ran too long" and found[1].costs == ()


def test_a_log_of_another_compiler_loads() -> None:
    found = record.decode(OLD)
    assert found is not None
    given, result = found
    assert given.task.workload == task().workload and given.config["tile_y"].size == (-1, 8)
    assert result.costs == (0.002,) and given.target.mcpu == "core-avx2"


def upstream(target: str, name: str, args: list[object], entity: list[object], seconds: float) -> str:
    """A line as TVM 0.8 to 0.15 wrote it."""
    config = {"index": 17, "code_hash": None, "entity": entity}
    result = [[seconds, 1.1 * seconds], 0, 2.5, 1600000000.5]
    row = {
        "input": [target, name, args, {}],
        "config": config,
        "result": result,
        "version": 0.2,
        "tvm_version": "0.8.0",
    }
    return json.dumps(row)


IMAGE, WEIGHT = ["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"]
WINDOW = [[1, 1], [1, 1, 1, 1], [1, 1]]
SPATIAL: list[object] = [
    *([f"tile_{axis}", "sp", [-1, size]] for axis, size in (("co", 8), ("oh", 2), ("ow", 8))),
    ["reorder_0", "re", [0, 1, 2, 3, 4, 5, 8, 6, 7, 9]],
    *(
        [f"ann_{kind}", "an", ["unroll", *rest]]
        for kind, rest in (("reduce", ["none"]), ("spatial", ["unroll", "vec"]))
    ),
]
BLOCKED: list[object] = [
    ["tile_ic", "sp", [-1, 16]],
    ["tile_oc", "sp", [-1, 16]],
    ["tile_ow", "sp", [-1, 14]],
    ["unroll_kw", "ot", True],
]
OPTIONS: list[object] = [*WINDOW, "NCHW", "NCHW", "float32"]
UPSTREAM: list[tuple[str, str, list[object], list[object]]] = [
    ("llvm -keys=cpu -link-params=0 -mcpu=core-avx2", "conv2d_NCHWc.x86", OPTIONS, BLOCKED),
    ("llvm -keys=arm_cpu,cpu -device=arm_cpu -mattr=+neon", "conv2d_nchw_spatial_pack.arm_cpu", OPTIONS, SPATIAL),
    (
        "opencl -keys=mali,opencl,gpu -device=mali -max_num_threads=256",
        "conv2d_nchw_spatial_pack.mali",
        OPTIONS,
        [["tile_fc", "sp", [-1, 4]]],
    ),
    ("cuda -keys=cuda,gpu -model=1080ti", "conv2d_nchw.cuda", OPTIONS, [["auto_unroll_max_step", "ot", 512]]),
]


def test_old_logs_load_and_operators_whose_knobs_mean_other_loops_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [upstream(t, n, [IMAGE, WEIGHT, *more], knobs, s) for t, n, more, knobs in UPSTREAM for s in (0.5, 0.25)]
    log = tmp_path / "tophub.log"
    log.write_text("\n".join([*lines, OLD]) + "\n")
    with caplog.at_level(logging.WARNING, "autotvm"):
        pairs = list(record.load_from_file(log))
        assert not caplog.records and len(pairs) == 9, "all of them are records"
        context = autotvm.apply_history_best(log)
    given, result = pairs[2]
    assert given.task.args == (
        ("TENSOR", (1, 64, 56, 56), "float32"),
        tuple(map(_tuples, WEIGHT)),
        *map(_tuples, OPTIONS),
    )
    assert [given.config[name].size for name in ("tile_co", "tile_oh", "tile_ow")] == [(-1, 8), (-1, 2), (-1, 8)]
    assert list(given.config["reorder_0"].perm) == [0, 1, 2, 3, 4, 5, 8, 6, 7, 9] and result.mean == pytest.approx(
        0.525
    )
    message = [r.getMessage() for r in caplog.records]
    assert len(message) == 4 and all("mean other loops" in text for text in message)
    assert all(any(f"knobs of {name} mean" in text for text in message) for _, name, _, _ in UPSTREAM)
    assert context.query(pairs[-1][0].target, task().workload)["tile_y"].size == (-1, 8), "a template of the user's"


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def test_damaged_lines_are_told_by_number_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    good = record.encode(*pair(2, 0.1))
    lines = ["# a comment", good, good[: len(good) // 2], "[1, 2]", '{"version": 0.3}', '{"v": 0.1, "i": []}', "", good]
    with caplog.at_level(logging.WARNING, "autotvm"):
        found = list(record.load_from_file(io.StringIO("\n".join(lines))))
    assert len(found) == 2
    message = [r.getMessage() for r in caplog.records]
    assert [t.partition("line ")[2][0] for t in message] == ["3", "4", "5", "6"]
    assert "no JSON" in message[0] and "version 0.1" in message[3]


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_tail_that_a_killed_writer_left_is_repaired(
    tmp_path: Path, is_whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log, good = tmp_path / "t.log", record.encode(*pair(2, 0.1))
    log.write_text(f"{good}\n{good if is_whole else good[:40]}")
    record.LogFile(log).append([good])
    assert log.read_text().splitlines() == [good] * (3 if is_whole else 2)
    assert ("40 bytes are cut off" in caplog.text) == (not is_whole)


def test_a_file_that_is_no_log_is_told_in_a_few_lines_and_not_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, good = tmp_path / "model.onnx", record.encode(*pair(2, 0.1))
    model.write_bytes(b"\x08\x08\x12\x07\n" * 100 + b"the end")
    with caplog.at_level(logging.WARNING, "autotvm"):
        assert list(record.load_from_file(model)) == []
    message = [r.getMessage() for r in caplog.records]
    assert len(message) == 6 and message[-1] == f"{model}: 96 more lines are left out; is it a log of tuning?"
    before = model.read_bytes()
    for lines in ([], [good]):
        with pytest.raises(TuningError, match=r"no log of tuning: it begins with .*\n +at: .*model.onnx\n.*another"):
            record.LogFile(model).append(lines)
    assert model.read_bytes() == before


def test_a_log_cut_at_any_byte_keeps_its_whole_records_and_takes_more(tmp_path: Path) -> None:
    log, rows = tmp_path / "t.log", [record.encode(*pair(index, 0.1 + index)) for index in range(3)]
    whole = "".join(f"{row}\n" for row in rows[:2])
    for size in range(len(whole) + 1):
        log.write_text(whole[:size])
        ends = whole[:size].count("\n") + (size in (len(rows[0]), len(whole) - 1))  # of a record without its end, too
        record.LogFile(log, fsync=False).append([rows[2]])
        assert log.read_text().splitlines() == [*rows[:ends], rows[2]], size


_STRANGE = (None, True, -1, 0, 1e400, math.nan, 10**30, 2.5, "", "x", "\0", "[1", "\xe9" * 50, [], {}, [[]], {"a": 1})


def changed(value: Any, chance: random.Random) -> Any:
    """JSON with something else at one place."""
    if not value or not isinstance(value, list | dict) or chance.random() < 0.2:
        return chance.choice(_STRANGE)
    made = value.copy()
    place = chance.choice(list(made) if isinstance(made, dict) else range(len(made)))
    if chance.random() < 0.1:
        del made[place]
    else:
        made[place] = changed(made[place], chance)
    return made


def test_whatever_a_line_holds_it_is_left_out_or_a_record_that_can_be_used() -> None:
    chance, made = random.Random(7), record.encode(*pair(2, 0.1))
    lines = [json.dumps(changed(json.loads(made), chance)) for _ in range(1500)]
    for _ in range(500):
        damaged = bytearray(made.encode())
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        lines.append(damaged.decode(errors="replace"))
    kept = 0
    for found in record.load_from_file(io.StringIO("\n".join(["[" * 100_000, *lines])), report=False):
        kept += 1
        record.decode(record.encode(*found))
        autotvm.apply_history_best([found])
        with contextlib.suppress(ArmillaryError):
            te_schedule, _ = task().instantiate(found[0].config)
            assert te_schedule is not None
    assert 100 < kept < 1500


def test_a_full_disk_is_an_error_and_leaves_whole_lines(tmp_path: Path) -> None:
    log, line = tmp_path / "t.log", record.encode(*pair(2, 0.1))
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * len(line), before[1]))  # no room for the second one
    try:
        with pytest.raises(ArtifactError, match="cannot write"):
            record.LogFile(log).append([line, line, line])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert log.read_text() == f"{line}\n"
    record.LogFile(log).append([line])
    assert log.read_text() == f"{line}\n" * 2


def test_two_writers_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    code = (
        "import sys; from armillary.autotvm.record import LogFile; log = LogFile(sys.argv[1], fsync=False)\n"
        'for i in range(60): log.append([\'{"n": %d, "pad": "%s"}\' % (i, \'x\' * 3000)])'
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(log)]) for _ in range(2)]
    assert [p.wait(60) for p in both] == [0, 0]
    assert sorted(json.loads(line)["n"] for line in log.read_text().splitlines()) == sorted([*range(60)] * 2)


def test_the_best_of_a_log_is_picked_and_applied(tmp_path: Path) -> None:
    log, best = tmp_path / "t.log", tmp_path / "best.log"
    slow, fast, small = pair(2, 0.5), pair(9, 0.1), pair(4, 0.3, 16)
    wrong = (slow[0], failed(MeasureErrorNo.WRONG_ANSWER, "no", 1.0))
    record.LogFile(log).append([record.encode(*p) for p in (slow, fast, small, wrong)])
    assert record.pick_best(log, best) == 2
    with autotvm.apply_history_best(str(best)) as context:
        assert context.query(slow[0].target, task().workload) == fast[0].config
        assert context.query(slow[0].target, task(16).workload) == small[0].config
        with armillary.target.Target("llvm"):
            s, _ = templates.matmul(64, 64, 64, "float32")
    assert str(fast[0].config["tile_x"].size[-1]) in str(s)


def test_a_missing_record_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with autotvm.ApplyHistoryBest([]) as context:
        for _ in range(3):
            assert context.query(task().target, ("test/matmul", 1, 2)) is None
    assert len([r for r in caplog.records if "no record for" in r.getMessage()]) == 1


def test_records_of_other_vectors_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    line = json.loads(record.encode(*pair(2, 0.1)))
    line["isa"] = "128x8"
    assert list(record.load_from_file(io.StringIO(json.dumps(line)))) == []
    assert "measured with vectors 128x8" in caplog.text


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="reading a pickle runs the code in it"):
        autotvm.callback.log_to_file(str(tmp_path / "x"), protocol="pickle")


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="cannot read the log"):
        autotvm.apply_history_best(str(tmp_path / "none.log"))


def _network(kind: str) -> armillary.IRModule:
    weight = relay.const(np.ones((16, 1 if kind == "depthwise" else 16, 3, 3), "float32"))
    groups = 16 if kind == "depthwise" else 1
    x = relay.var("x", shape=(1, 16, 14, 14))
    body = relay.nn.conv2d(x, weight, padding=(1, 1), channels=16, kernel_size=(3, 3), groups=groups)
    if kind == "dense":
        x = relay.var("x", shape=(8, 64))
        body = relay.nn.dense(x, relay.const(np.ones((32, 64), "float32")))
    return armillary.IRModule.from_expr(relay.Function([x], body))


def _damages(entities: list[list[object]]) -> Iterator[list[list[object]]]:
    """The knobs of a record with one left out, one renamed, one more, and each with values that no space has."""
    yield entities[1:]
    yield [["other", *entities[0][1:]], *entities[1:]]
    yield [*entities, ["more", "ot", 3]]
    for place, (name, kind, _) in enumerate(entities):
        wrong = (-1, 0, 7, 10**30, "x", None, {"a": 1}, 1.5) if kind == "ot" else ([-1, 7], [-1, 1, 10**6], [3, 3, 3])
        for value in wrong:
            yield [*entities[:place], [name, kind, value], *entities[place + 1 :]]
        yield [*entities[:place], [name, "re", [0, 1]], *entities[place + 1 :]]


@pytest.mark.parametrize("kind", ["conv2d", "depthwise", "dense"])
@pytest.mark.parametrize(
    "target",
    [
        *("llvm -mcpu=skylake-avx512", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
        *("opencl", "opencl -device=adreno"),
    ],
)
def test_a_record_whose_knobs_do_not_fit_is_left_out_with_file_and_line(
    kind: str, target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network, log = _network(kind), tmp_path / "tuned.log"
    tuned = autotvm.task.extract_from_program(network, {}, target)[0]
    own = tuned.config_space.get(int(tuned.config_space.valid_indices()[-1]))
    line = record.encode(MeasureInput(tuned.target, tuned, own), MeasureResult((0.5,), 0, 0.1, 1.0, ""))
    broken = list(_damages(json.loads(line)["config"]["entity"]))
    for entities in broken[:: max(1, len(broken) // 12)]:
        faster = json.loads(line)
        faster["config"]["entity"], faster["result"][0] = entities, [0.1]
        log.write_text(f"# damaged\n{json.dumps(faster)}\n{line}\n")
        caplog.clear()
        with autotvm.apply_history_best(str(log)) as context, armillary.transform.PassContext(opt_level=3):
            relay.build(network, target)
            answer = context.query(tuned.target, tuned.workload)
        fits = answer.key() == str([[n, k, list(v) if isinstance(v, list) else v] for n, k, v in entities])
        assert fits or answer == own
        assert fits or (f"{log}, line 2" in caplog.text and "left out" in caplog.text)


def test_a_template_that_cannot_use_a_record_falls_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, good = tmp_path / "tuned.log", record.encode(*pair(2, 0.5))
    row = json.loads(good)
    row["config"]["entity"], row["result"][0] = row["config"]["entity"][:1], [0.1]
    log.write_text(f"{json.dumps(row)}\n{good}\n")
    with autotvm.apply_history_best(str(log)), armillary.target.Target("llvm"):
        s, _ = templates.matmul(64, 64, 64, "float32")
    assert str(s) and f"{log}, line 1, of test/matmul, is left out: the configuration has no knob" in caplog.text
