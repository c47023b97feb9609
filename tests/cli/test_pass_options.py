"""`armc opt` and `armc compile`: passes of a build, texts before and after passes, files, checks, loop passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.cli.main import main

RELAY = """def @main(%x: Tensor[(1, 8), float32]) {
  %0 = nn.relu(%x);
  %1 = nn.relu(%0);
  exp(%1)
}
"""
TIR = """func @main(A: Buffer[(8,), float32]) {
  for i in range(4) unrolled {
    A[i * 2 + 0] = 0.0
  }
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.relay"
    path.write_text(RELAY)
    return str(path)


def test_build_runs_the_whole_pipeline(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", model, "--build", "--target", "llvm -mtriple=x86_64-linux-gnu"]) == 0
    out = capsys.readouterr().out
    assert "Primitive=1" in out
    assert out.count("nn.relu") == 1


def test_relay_era_names_and_texts_around_passes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    around = ["--print-before", "FastMath", "--print-after", "fast-math"]
    assert main(["opt", model, "-p", "SimplifyExpr,FastMath", *around]) == 0
    out = capsys.readouterr().out
    before, after = out.index("# before FastMath"), out.index("# after FastMath")
    assert before < out.index(" exp(") < after < out.index("fast_exp(")


def test_only_passes_that_change_something_are_shown(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", model, "--build", "--print-changes", "--verify-passes"]) == 0
    out = capsys.readouterr().out
    assert "# after SimplifyExpr" in out
    assert "# after CombineParallelDense" not in out


def test_a_pass_to_print_must_exist(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", model, "-p", "InferType", "--print-after", "InferTyp"]) == 4
    assert "there is no pass 'InferTyp'" in capsys.readouterr().err


def test_loop_passes_run_on_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.tir"
    path.write_text(TIR)
    shown = ["--print-after", "tir.UnrollLoop", "--disabled-pass", "tir.RemoveNoOp"]
    assert main(["opt", str(path), "--build", *shown]) == 0
    out = capsys.readouterr().out
    assert "# after tir.UnrollLoop" in out
    assert out.count("A[6] = 0.0") == 2


def test_compile_shows_and_dumps_graph_and_loop_passes(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumped = tmp_path / "passes"
    arguments = [
        "compile",
        model,
        "-o",
        str(tmp_path / "m.so"),
        "--print-after",
        "FuseOps,tir.StorageRewrite",
        "--dump-passes",
        str(dumped),
        "--verify-passes",
        "--print-pass-times",
        "-O",
        "2",
        "--required-pass",
        "FastMath",
        "--pass-config",
        "tir.add_lower_pass=1,tir.LoopPartition,3,tir.Simplify",
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "# after FuseOps" in out
    assert "# after tir.StorageRewrite" in out
    assert "fast_exp" in out
    assert "tir.VectorizeLoop" in out
    names = [path.stem.split("_", 1)[1] for path in sorted(dumped.iterdir())]
    assert names.count("tir.LoopPartition") == 2 * names.count("tir.InjectPrefetch") > 0
    assert names.index("FuseOps") < names.index("tir.StorageFlatten") < names.index("tir.UnrollLoop")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tir.add_lower_pass=1", "expected phases and passes in turn"),
        ("tir.add_lower_pass=x,tir.Simplify", "expected phases and passes in turn"),
        ("tir.add_lower_pass=1,tir.Simplfy", "there is no pass 'tir.Simplfy'"),
        ("tir.UnrollLoop={'max': 3}", "tir.UnrollLoop has no option 'max'"),
        ("tir.UnrolLoop={}", "did you mean tir.UnrollLoop"),
    ],
)
def test_wrong_pass_options_say_what_is_right(
    model: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", model, "-p", "InferType", "--pass-config", value]) == 4
    assert message in capsys.readouterr().err
