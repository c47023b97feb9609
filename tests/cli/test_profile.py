"""armc profile: figures that agree with the model, reasons, and a page that stands alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.base.extent import size
from armillary.cli.main import main
from armillary.cli.profile import short_name
from armillary.driver import roof
from armillary.driver.profile import profile_graph
from armillary.driver.roof import Roof, measured_roof
from armillary.driver.variants import variants_of
from armillary.ir import IRModule
from armillary.relay.parser import parse
from armillary.relay.work import argument_reads
from armillary.runtime import cpu

MODEL = """
def @main(%x: Tensor[(1, 32, 20, 20), float32], %w: Tensor[(64, 32, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w);
  %1 = nn.relu(%0);
  nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2])
}
"""
VOID = {"meta", "rect", "line", "br", "i"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model as text and as both kinds of packages."""
    folder = tmp_path_factory.mktemp("profile")
    found = {"relay": folder / "small & <odd>.relay", "so": folder / "small.so", "tar": folder / "small.tar"}
    found["relay"].write_text(MODEL)
    for kind in ("so", "tar"):
        assert main(["compile", str(found["relay"]), "-o", str(found[kind])]) == 0
    return found


@pytest.fixture(autouse=True)
def known_roof(monkeypatch: pytest.MonkeyPatch) -> Roof:
    """A machine of round figures; measuring the real one has tests of its own."""
    machine = Roof("square", 1, 100.0, 160.0, 80.0, 40.0, 20.0)
    monkeypatch.setattr("armillary.cli.profile.measured_roof", lambda again: machine)
    return machine


@pytest.mark.parametrize("kind", ["relay", "so", "tar"])
def test_profile_counts_the_work_of_each_kernel(files: dict[str, Path], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "profile.json"
    assert main(["profile", str(files[kind]), "--runs", "3", "--threads", "1", "--json", str(path)]) == 0
    message = json.loads(path.read_text())
    rows = [k for k in message["kernels"] if "conv2d" in k["function"]]
    flops = 2 * 20 * 20 * 64 * 32 + 20 * 20 * 64
    assert [k["flops"] for k in rows] == [flops] and rows[0]["ms"] > 0
    assert rows[0]["gflops"] == pytest.approx(1e-6 * flops / rows[0]["ms"])
    pool = next(k for k in message["kernels"] if "max_pool2d" in k["function"])
    assert pool["flops"] == 64 * 10 * 10 * 4 and pool["bytes"] == 4 * 64 * (20 * 20 + 10 * 10)
    assert sum(k["share"] for k in message["kernels"]) == pytest.approx(1)
    assert all(k["calls"] == 1 for k in message["kernels"])
    assert message["total"]["in_kernels_ms"] == pytest.approx(sum(k["ms"] for k in message["kernels"]))
    starts = [k["start_ms"] for k in message["kernels"]]
    assert starts == sorted(starts) and starts[0] == 0


def test_the_time_of_the_threads_is_divided_without_rest(files: dict[str, Path], tmp_path: Path) -> None:
    path, html = tmp_path / "profile.json", tmp_path / "page.html"
    arguments = ["profile", str(files["so"]), "--runs", "5", "--json", str(path), "--html", str(html)]
    assert main([*arguments, "--threads", "2"]) == 0
    message = json.loads(path.read_text())
    for row in [message["total"], *message["kernels"]]:
        parts = [row[f"{name}_ms"] for name in ("computing", "uneven", "fork_join")]
        assert min(parts) > -1e-6 and parts[0] > 0
        assert sum(parts) == pytest.approx(row.get("in_kernels_ms", row["ms"]))
    assert 0 < message["total"]["call_ms"] < 1 and message["total"]["between_kernels_ms"] >= 0
    spans, kernels = message["timeline"]["spans"], {k["index"] for k in message["kernels"]}
    assert {-1, 0} <= {s["thread"] for s in spans} <= {-1, 0, 1} and {s["index"] for s in spans} == kernels
    assert all(0 <= s["start_ms"] <= s["end_ms"] <= message["timeline"]["ms"] for s in spans)
    lanes = re.findall(r"<div>(in kernels|thread \d computes) (\d+) %</div>", html.read_text("utf-8"))
    assert [name for name, _ in lanes] == ["in kernels", "thread 0 computes", "thread 1 computes"]


def test_it_says_why_the_kernels_and_the_whole_inference_differ(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(files["so"]), "--runs", "5", "--threads", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    whole, kernels = map(float, re.findall(r"inference ([\d.]+) ms, its kernels ([\d.]+) ms", out)[0])
    number = r"(-?[\d.]+)"
    line = rf"differ by {number} ms: {number} between kernels, {number} the clock at each kernel, {number} medians that"
    message, *parts = map(float, re.findall(line, out)[0])
    assert message == pytest.approx(whole - kernels, abs=1.1e-3) and sum(parts) == pytest.approx(message, abs=2.1e-3)
    assert parts[0] >= 0


def test_the_work_of_a_loop_is_that_of_all_its_iterations(known_roof: Roof) -> None:
    module = parse("""def @main(%n: Tensor[(), int64], %x: Tensor[(8, 16), float32]) {
      %1 = fn (%i: Tensor[(), int64], %going: Tensor[(), bool], %s: Tensor[(8, 16), float32]) {
        %0 = multiply(%s, 2f);
        (%going, %0)
      };
      loop(%1, %n, True, %x, states=1, trips=10)
    }""")
    library = relay.build(module, "llvm")
    graph = library["default"](cpu(0))
    graph.set_input("n", np.int64(7))
    graph.set_input("x", np.ones((8, 16), np.float32))
    profile = profile_graph(graph, library.get_graph_json(), known_roof, runs=2)
    (kernel,) = (k for k in profile.kernels if "multiply" in k.function)
    assert (kernel.share.calls, kernel.flops, kernel.nbytes) == (7, 7 * 8 * 16, 7 * 2 * 4 * 8 * 16)
    assert short_name(kernel).endswith(" ×7") and kernel.seconds < profile.traced
    np.testing.assert_array_equal(graph.get_output(0).numpy(), np.full((8, 16), 2.0**7, np.float32))


def test_a_look_up_reads_its_rows_and_not_its_table(known_roof: Roof) -> None:
    table, ids = relay.const(np.ones((5000, 32), np.float32)), relay.var("ids", shape=(7,), dtype="int64")
    library = relay.build(IRModule.from_expr(relay.Function([ids], relay.take(table, ids, axis=0))), "llvm")
    graph = library["default"](cpu(0))
    graph.set_input("ids", np.arange(7))
    (kernel,) = profile_graph(graph, library.get_graph_json(), known_roof, runs=2).kernels
    assert kernel.nbytes == 7 * 8 + 2 * 7 * 32 * 4


def test_a_step_of_an_lstm_reads_the_inputs_of_one_step() -> None:
    module = parse("""def @main(%g: Tensor[(2, 64), float32], %x: Tensor[(50, 2, 64), float32],
        %i: Tensor[(1,), int64], %c: Tensor[(2, 16), float32]) {
      nn.lstm_cell(%g, %x, %i, %c)
    }""")
    function = relay.transform.InferType()(module)["main"]
    assert argument_reads(function) == {1: 4 * 2 * 64}


def test_a_parameter_that_was_just_read_comes_from_a_near_cache(known_roof: Roof) -> None:
    weight = relay.const(np.ones((600, 600), np.float32))  # 1.4 MB, and behind it 14 MB that are read once
    x = relay.var("x", shape=(1, 600))
    y = relay.nn.dense(relay.nn.relu(relay.nn.dense(x, weight)), weight)
    y = relay.nn.dense(y, relay.const(np.ones((6000, 600), np.float32)))
    library = relay.build(IRModule.from_expr(relay.Function([x], y)), "llvm")
    graph = library["default"](cpu(0))
    graph.set_input("x", np.ones((1, 600), np.float32))
    first, second, last = profile_graph(graph, library.get_graph_json(), known_roof, runs=2).kernels
    assert second.moved["l2"] > first.moved["l2"] and second.least < first.least
    assert sum(second.moved.values()) == pytest.approx(4 * (600 * 600 + 2 * 600))
    assert last.nbytes == 4 * (6000 * 600 + 600 + 6000)


def test_a_faster_kernel_than_the_roof_has_the_machine_measured_again(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [Roof("slow", 1, 1e-6, 160.0, 80.0, 40.0, 20.0), Roof("rested", 1, 200.0, 160.0, 80.0, 40.0, 20.0)]
    asked: list[bool] = []

    def measured(again: bool) -> Roof:
        asked.append(again)
        return machines[len(asked) - 1]

    monkeypatch.setattr("armillary.cli.profile.measured_roof", measured)
    monkeypatch.setattr("armillary.driver.profile.LONG", 0.0)  # a fast machine has no long kernel here
    path = tmp_path / "profile.json"
    assert main(["profile", str(files["so"]), "--runs", "2", "--json", str(path)]) == 0
    message = json.loads(path.read_text())
    assert asked == [False, True] and message["machine"]["gflops"] == 200.0
    row = next(k for k in message["kernels"] if "conv2d" in k["function"])
    assert row["roof_ms"] == pytest.approx(1e3 * max(row["flops"] / 2e11, row["bytes"] / 8e10), rel=0.01)


def test_kernels_of_another_variant_are_left_out(known_roof: Roof) -> None:
    def network(rows: int) -> IRModule:
        x = relay.var("x", shape=(rows, 16))
        return IRModule.from_expr(relay.Function([x], relay.nn.softmax(x)))

    library = relay.build(variants_of([network(1), network(8)]), "llvm")
    graph = library["default"](cpu(0))
    graph.set_input("x", np.ones((8, 16), np.float32))
    (kernel,) = profile_graph(graph, library.get_graph_json(), known_roof, runs=2).kernels
    assert kernel.shape == "8x16" and kernel.seconds > 0


def test_the_roof_is_the_longer_of_arithmetic_and_traffic(known_roof: Roof) -> None:
    assert known_roof.seconds(1e9, {"l2": 1e6}) == (0.01, "arithmetic")
    least, bound = known_roof.seconds(1e6, {"l3": 4e8, "memory": 1e8})
    assert least == pytest.approx(0.01 + 0.005) and bound == "L3"
    assert known_roof.seconds(0, {}) == (0.0, "arithmetic")


def test_the_table_names_algorithm_tile_and_reasons(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(files["relay"]), "--runs", "2", "--why", "--top", "1", "--threads", "2"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"share +waits +GFLOP/s", out) and "waiting for the slowest thread" in out
    assert "% reached" in out and "square, 1 thread: 100 GFLOP/s" in out
    assert main(["profile", str(files["relay"]), "--runs", "2", "--why", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    row = re.search(r"^ *\d+ +conv2d_relu +[\d.]+ +[\d.]+ % +[\d.]+ +[\d.]+ +\d+ +\w+ +(\w.*)$", out, re.MULTILINE)
    assert row, out
    lines = r"^#\d+ conv2d_relu\n    (\w.*)\n(?:    .*\n)*?    roof [\d.]+ ms, set by \w+$"
    reasons = re.search(lines, out, re.MULTILINE)
    assert reasons, out
    assert row[1].split()[0] == reasons[1].split()[0].rstrip(","), "table and reasons name the same algorithm"


class _Page(HTMLParser):
    """Collects what a page refers to, and checks that its elements nest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.references: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID - {"i"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_stands_alone_and_escapes_what_it_shows(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert main(["profile", str(files["relay"]), "--runs", "2", "--html", str(path)]) == 0
    text = path.read_text("utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == [] and page.references == [] and "http" not in text and "url(" not in text
    assert "<odd>" not in text and any("small & <odd>.relay" in t for t in page.texts)
    assert text.count('class="k"') >= 4, "every kernel is in the timeline and among the bars"
    assert [t for t in page.texts if t in ("#", "kernel", "% roof", "algorithm, tile, reasons")] == [
        "#",
        "kernel",
        "% roof",
        "algorithm, tile, reasons",
    ], "the headings of the table, once"
    assert "% of the roof" in text and "max_pool2d" in text


def test_refusals_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(tmp_path / "none.so")]) == 4
    assert "there is no such file" in capsys.readouterr().err
    (tmp_path / "model.bin").touch()
    assert main(["profile", str(tmp_path / "model.bin")]) == 4
    assert "the model: .onnx, .h5, .keras" in capsys.readouterr().err
    for option in ("--runs", "--threads", "--top"):
        with pytest.raises(SystemExit):
            main(["profile", "x.so", option, "-1"])
        assert f"{option}: got '-1', wanted a whole number that is at least" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["profile", "x.so", "--runs", "0"])
    assert "at least 1" in capsys.readouterr().err


def test_a_network_of_open_sizes_is_measured_at_those_of_its_inputs(known_roof: Roof) -> None:
    x, weight = (
        relay.var("x", relay.TensorType((size("rows", 1, 64, hint=16), 32))),
        relay.const(np.ones((48, 32), "f4")),
    )
    library = relay.build(IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight))), "llvm")
    graph = library["default"](cpu(0))
    for rows, flops in ((16, 2 * 16 * 32 * 48), (5, 0)):  # a build counts operations at one size of each
        graph.set_input("x", np.ones((rows, 32), np.float32))
        (kernel,) = profile_graph(graph, library.get_graph_json(), known_roof, runs=2).kernels
        assert (kernel.flops, kernel.shape) == (flops, f"{rows}x48")
        assert kernel.nbytes == pytest.approx(4 * (rows * 32 + 48 * 32 + rows * 48), rel=0.01)


def test_profile_takes_sizes_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, figures = tmp_path / "open.relay", tmp_path / "figures.json"
    path.write_text("def @main(%x: Tensor[(b, 3, s), float32]) { nn.softmax(%x) }")
    assert main(["profile", str(path), "--sizes", "b=2,s=9", "--runs", "2", "--json", str(figures)]) == 0
    assert [k["output"] for k in json.loads(figures.read_text())["kernels"]] == ["2x3x9"]
    assert "softmax" in capsys.readouterr().out


def test_the_roof_is_measured_once_and_a_damaged_file_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "roof" / "this.json"  # the kernels that measure are in the cache of all tests
    monkeypatch.setattr(roof, "_path", lambda *_: path)
    monkeypatch.setattr(roof, "BUDGET", 0.005)
    first = measured_roof()
    assert min(first.gflops, first.l1, first.l2, first.l3, first.memory) > 0.05 and first.threads >= 1
    assert measured_roof() == first
    monkeypatch.setattr(roof, "measure", lambda model, threads: Roof(model.name, threads, 1.0, 1.5, 2.0, 3.0, 1e9))
    assert measured_roof() == first, "read from the file"
    again = measured_roof(again=True)
    assert (again.gflops, again.memory) == (first.gflops, 1e9), "a ceiling is the best that was reached"
    path.write_text("{broken")
    assert measured_roof().gflops == 1.0


def test_memory_is_measured_with_no_more_of_it_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def far(l3: int, available: int) -> int:
        monkeypatch.setattr(Path, "read_text", lambda *_: f"MemTotal: 1 kB\nMemAvailable: {available >> 10} kB\n")
        return roof._beyond_caches(l3)

    assert far(32 << 20, 16 << 30) == 128 << 20
    assert far(480 << 20, 64 << 30) == 1 << 30, "twice the L3 are enough"
    assert far(1100 << 20, 64 << 30) == 2200 << 20
    assert far(480 << 20, 2 << 30) == 512 << 20, "a quarter of the memory"
    assert far(480 << 20, 0) == 64 << 20


def test_the_peak_is_near_what_the_facts_of_the_cpu_say() -> None:
    model = roof.cpu_model("llvm")
    measured = roof._peak(model, 1)
    stated = 2 * model.lanes * model.fma_ports * model.memory.ghz
    assert 0.02 * stated < measured < 3 * stated, "a loop that the compiler removed, or one that is not vectorised"
    assert np.isfinite(measured)
