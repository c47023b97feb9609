"""Which code this machine can run, and ONNX Runtime where its integer products are exact on every machine.

In: targets; ONNX models. Out: `runs_here`, `needs`, `exact_session`. Invariant: code for another CPU is compiled
everywhere and run only where its instructions are.
"""

from __future__ import annotations

from typing import Any

import pytest

from armillary.target.cpu import cpu_model


def runs_here(target: str) -> bool:
    """Whether this machine has every instruction that code for `target` may use."""
    wanted, host = cpu_model(target), cpu_model("llvm")
    return wanted.arch == host.arch and wanted.features <= host.features


def needs(target: str) -> None:
    """Skip the test where this machine cannot run code for `target`."""
    if not runs_here(target):
        pytest.skip(f"runs code for {cpu_model(target).name}")


def exact_session(model: Any) -> Any:  # Any: a ModelProto; an InferenceSession
    """ONNX Runtime with products of uint8 by int8 that do not saturate.

    On x86 without dot products of bytes it adds pairs of products in 16 bits, which saturate for large weights; the
    option makes constant weights uint8, which are added in 32 bits.
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
