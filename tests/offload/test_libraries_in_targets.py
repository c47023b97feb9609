"""Libraries in lists of targets, the report of what runs where, and the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.cli.main import main
from armillary.driver.libraries import split_libraries
from armillary.driver.variants import MARK
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload.contract import find_offload, partition
from armillary.offload.report import offload_report
from armillary.relay.expr import Function, const, var
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib

ARM = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+fullfp16"


def network() -> IRModule:
    x = var("x", shape=(1, 3, 8, 8))
    weight = const(np.ones((4, 3, 3, 3), "float32"))
    y = relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1)))
    grouped = const(np.ones((4, 2, 3, 3), "float32"))
    y = relay.sigmoid(relay.nn.conv2d(y, grouped, groups=2))
    return IRModule.from_expr(Function((x,), y))


def test_lists_begin_with_libraries() -> None:
    assert split_libraries(f"arm_compute_lib, {ARM}") == (("arm_compute_lib",), ARM)
    assert split_libraries(f"compute-library,arm_compute_lib, {ARM}") == (("arm_compute_lib",), ARM)
    assert split_libraries(ARM) == ((), ARM)
    assert split_libraries(None) == ((), None)
    with pytest.raises(ConfigError, match="the target is only a library: compute-library") as error:
        split_libraries("compute-library")
    assert "llvm" in error.value.hint


def test_a_build_for_a_list_offloads_and_reports() -> None:
    library = relay.build(network(), f"compute-library, {ARM}")
    assert [m.type_key for m in library.lib.imported_modules] == ["arm_compute_lib"]
    rows = library.offload_report.rows
    assert [row.what for row in library.offload_report.offloaded] == ["arm_compute_lib.conv2d"]
    reasons = {row.what: row.reason for row in rows if row.reason}
    assert reasons["nn.conv2d"] == "the convolution has 2 groups; one, or depthwise, is possible"
    assert reasons["sigmoid"] == "arm_compute_lib has no such operator"
    assert str(library.offload_report).startswith("1 functions offloaded, ")
    plain = relay.build(network(), "llvm").offload_report
    assert not plain.offloaded and {row.reason for row in plain.kept} == {"no library was asked"}


def test_the_report_is_there_when_nothing_was_offloaded() -> None:
    x = var("x", shape=(2, 3))
    module = IRModule.from_expr(Function((x,), relay.sigmoid(relay.tanh(x))))
    asked = relay.build(module, f"arm_compute_lib, {ARM}").offload_report
    by_hand = relay.build(partition_for_arm_compute_lib(module), ARM).offload_report
    for report in (asked, by_hand):
        assert not report.offloaded and report.asked == ("arm_compute_lib",)
        assert [row.reason for row in report.kept] == ["arm_compute_lib has no such operator"] * 2
        assert str(report).startswith("0 functions offloaded, 2 calls kept")


@pytest.mark.parametrize("library", ["arm_compute_lib", "clml"])
def test_an_operator_that_a_script_adds_without_a_row_is_refused(library: str) -> None:
    x = var("x", shape=(1, 4, 4, 4))
    module = IRModule.from_expr(Function((x,), relay.nn.leaky_relu(x, 0.1)))
    operator, key = relay.op.get("nn.leaky_relu"), f"target.{library}"
    operator.set_attr(key, lambda call: False)
    try:
        assert find_offload(library).name == library
        assert not offload_report(partition(module, find_offload(library))).offloaded
        operator.set_attr(key, lambda call: True, 20)
        with pytest.raises(UnsupportedError, match=rf"{library} takes nn.leaky_relu, for which it has no row"):
            partition(module, find_offload(library))
        with pytest.raises(UnsupportedError, match="no row"):
            relay.transform.AnnotateTarget(library)(relay.transform.InferType()(module))
    finally:
        operator.reset_attr(key)


def test_the_report_follows_partitioning_by_hand() -> None:
    report = offload_report(partition_for_arm_compute_lib(network()))
    assert [row.name for row in report.offloaded] == ["tvmgen_default_arm_compute_lib_main_0"]
    untouched = offload_report(network(), ["arm_compute_lib"])
    assert not untouched.offloaded
    assert {row.reason for row in untouched.kept if row.what == "nn.conv2d"} >= {"data_layout is 'NCHW', wanted 'NHWC'"}


def test_armc_compile_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.relay"
    model.write_text(network().astext())
    arguments = ["compile", str(model), "--explain-offload", "-o", str(tmp_path / "m.tar")]
    assert main([*arguments, "--target", f"arm_compute_lib, {ARM}"]) == 0
    message = capsys.readouterr().out
    assert "arm_compute_lib.conv2d tvmgen_default_arm_compute_lib_main_0: arm_compute_lib" in message
    assert "nn.conv2d: the convolution has 2 groups" in message
    assert main([*arguments, "--target", "llvm"]) == 0
    assert "nothing is offloaded: the target names no library" in capsys.readouterr().out


def test_variants_are_refused() -> None:
    module = network()
    module["small"] = module["main"].with_attr(MARK, 1)
    with pytest.raises(UnsupportedError, match="2 variants cannot be offloaded to arm_compute_lib"):
        relay.build(module, f"arm_compute_lib, {ARM}")


def test_armc_build_external_names_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build-external", "nothing"]) != 0
    assert "there is no runtime to build for 'nothing'" in capsys.readouterr().err
