"""Compile an ONNX model and compare what it gives with ONNX Runtime and the ONNX reference.

In: a `Drawn` (model and inputs), levels, a target. Out: a graph_check.Outcome: `agrees`, `wrong`, `refused`, `error`,
`rejected` where there is no truth, `doubtful` where the reference evaluator alone says otherwise, which is for reading.
Invariant: a result is wrong if it differs from both truths by more than rounding can explain, or from ONNX Runtime
where it is the only one and gives the same node by node; how far rounding
goes is measured, not guessed (onnx_truth.spread).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_truth
from graph_check import Outcome
from onnx_kit import Array, Drawn

from armillary.backend import _grouped
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArmillaryError, InternalError, UnsupportedError
from armillary.frontend import from_onnx
from armillary.runtime import load_module
from armillary.runtime.device import cpu
from armillary.transform import PassContext

USER_ERRORS = (UnsupportedError,)
_TRIALS = 4
# Than a kernel reads: an index out of range is clamped here, so what it points at is no element behind the data.
_ASKS_MORE = re.compile("EmbedLayerNormalization|during initialization|OrtValue provided|Out of range value in index")
_DO_NOT_FIT = re.compile("dimension|shape|size|broadcast|mismatch|axis|elements", re.I)


def compiled_outputs(drawn: Drawn, level: int, target: str, how: str = "") -> list[Array]:
    """What the compiled model gives. `how`: "" in memory, "params" weights apart, "so", "tar" through a package."""
    module, params = from_onnx(drawn.model, freeze_params=how != "params")
    with PassContext(opt_level=level):
        library = build(module, target=target, params=params)
    if how not in ("so", "tar"):
        return _run(library, drawn, module["main"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"m.{how}"
        library.export_library(str(path))
        return _run(load_module(str(path)), drawn, module["main"])


def _run(library: Any, drawn: Drawn, main: Any) -> list[Array]:
    executor = GraphModule(library["default"](cpu(0)))
    for name, value in drawn.inputs.items():
        executor.set_input(name, value)
    executor.run()
    outputs = [np.asarray(executor.get_output(i).numpy()) for i in range(executor.get_num_outputs())]
    return _grouped(outputs, main)


def check(drawn: Drawn, levels: Sequence[int], target: str, how: str = "") -> Outcome:
    """Compile at each level, run, compare."""
    wanted, skipped = onnx_truth.truths(drawn.model, drawn.inputs)
    if not wanted:
        return Outcome("rejected", "no truth", str(skipped))
    room: dict[str, list[Array]] = {}
    for level in levels:
        outcome = _check_level(drawn, level, target, how, wanted, room)
        if outcome.failed or outcome.kind == "rejected":
            return outcome
    compared = sum(int(np.size(a)) for a in next(iter(wanted.values()))) * len(levels)
    both = len(wanted) == 2 and not onnx_truth.differences(*wanted.values())
    return Outcome("agrees", "both" if both else "one", elements=compared)


def check_other_sizes(drawn: Drawn, seed: int, target: str) -> Outcome:
    """One build of a model with open axes, run with an axis of an input longer or shorter, a few times.

    What is refused was not read. What gives a result must be what ONNX Runtime gives, which refuses inputs that do not
    fit; a result where it has none was computed from memory behind an input.
    """
    rng, compared = np.random.default_rng(seed), 0
    module, params = from_onnx(drawn.model)
    library = build(module, target=target, params=params)
    axes = [(name, k) for name, a in drawn.inputs.items() for k, size in enumerate(np.shape(a)) if size > 1]
    for index in rng.permutation(len(axes))[:_TRIALS]:
        name, axis = axes[index]
        old = np.asarray(drawn.inputs[name])
        shape = list(old.shape)
        shape[axis] = max(2, shape[axis] + int(rng.choice([-1, 1, 3, 500])))
        other = Drawn(drawn.model, {**drawn.inputs, name: np.resize(old, shape)})
        try:
            got = _run(library, other, module["main"])
        except ArmillaryError:
            continue
        try:
            want = onnx_truth.by_onnxruntime(other.model, dict(other.inputs))
        except Exception as error:
            turned = {**other.inputs, name: np.flip(other.inputs[name]) + np.ones((), old.dtype)}
            is_read = onnx_truth.differences(got, _run(library, Drawn(other.model, turned), module["main"]))
            if not is_read or not _DO_NOT_FIT.search(str(error)) or _ASKS_MORE.search(str(error)):
                continue
            message = f"{name} of {shape}, other inputs fit {old.shape}: a result where ONNX Runtime says: {error}"
            return Outcome("wrong", f"beyond an input: {_operators(drawn)}"[:200], message[:2000])
        problem = onnx_truth.differences(got, want)
        if problem and onnx_truth.differences(got, want, onnx_truth.spread(other.model, dict(other.inputs))):
            message = f"{name} of {shape} instead of {old.shape}: {problem}"
            return Outcome("wrong", f"other sizes: {_operators(drawn)}"[:200], message[:2000])
        compared += sum(map(np.size, want))
    return Outcome("agrees", "other sizes", elements=compared)


def _check_level(
    drawn: Drawn, level: int, target: str, how: str, wanted: dict[str, list[Array]], room: dict[str, list[Array]]
) -> Outcome:
    where = f"{target} level {level}{' ' + how if how else ''}"
    try:
        got = compiled_outputs(drawn, level, target, how)
    except InternalError as error:
        return Outcome("error", f"InternalError: {plain(error.message)}", f"{where}: {error}"[:2000])
    except ArmillaryError as error:
        signature = f"{type(error).__name__}: {plain(error.message)}"
        return Outcome("refused", signature, f"{where}: {error}"[:2000])
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {plain(str(error))}", f"{where}: {error!r}"[:2000])
    problems = {who: onnx_truth.differences(got, want) for who, want in wanted.items()}
    if not all(problems.values()):
        return Outcome("agrees")
    if not room:
        _measure(drawn, wanted, room)
    problems = {who: onnx_truth.differences(got, want, room.get("room")) for who, want in wanted.items()}
    if not all(problems.values()):
        return Outcome("agrees")
    if set(wanted) == {onnx_truth.REFERENCE}:
        return _without_ort(drawn, got, problems[onnx_truth.REFERENCE], room, where)
    return _node_by_node(drawn, got, room) or Outcome(
        "wrong", f"wrong: {_operators(drawn)}"[:200], f"{where}: {_told(problems)}"[:2000]
    )


def _node_by_node(drawn: Drawn, got: list[Array], room: dict[str, list[Array]]) -> Outcome | None:
    """What to say where ONNX Runtime's answer for the graph is none for its nodes, or loses digits; else None."""
    try:
        answers = onnx_truth.node_by_node(drawn.model, drawn.inputs)
    except onnx_truth.NoTruth as error:
        return Outcome("rejected", "no truth for a node", str(error))
    except Exception:  # a node that neither evaluates alone
        return None
    if not onnx_truth.differences(got, answers, room.get("room")):
        return Outcome("agrees")
    try:
        answers = onnx_truth.in_float64(drawn.model, drawn.inputs)
    except Exception:  # nobody knows better: what differs is wrong
        return None
    return None if onnx_truth.differences(got, answers, room.get("room")) else Outcome("agrees")


def _without_ort(drawn: Drawn, got: list[Array], problem: str, room: dict[str, list[Array]], where: str) -> Outcome:
    """What to say of a graph that ONNX Runtime does not run, and on which we and the reference differ."""
    try:
        answers = onnx_truth.node_by_node(drawn.model, drawn.inputs)
        nodes = onnx_truth.differences(got, answers, room.get("room"))
    except onnx_truth.NoTruth as error:
        return Outcome("rejected", "no truth for a node", str(error))
    except Exception as error:  # a node that neither evaluates alone
        nodes = repr(error)
    if not nodes:
        return Outcome("agrees")
    message = f"{where}: onnx reference: {problem}; node by node: {nodes}"
    return Outcome("doubtful", f"doubtful: {_operators(drawn)}"[:200], message[:2000])


def _told(problems: dict[str, str]) -> str:
    return "; ".join(f"{who}: {problem}" for who, problem in problems.items())


def _operators(drawn: Drawn) -> str:
    return "+".join(dict.fromkeys(n.op_type for n in drawn.model.graph.node if n.op_type != "Constant"))


def _measure(drawn: Drawn, wanted: dict[str, list[Array]], room: dict[str, list[Array]]) -> None:
    try:
        room["room"] = onnx_truth.spread(drawn.model, drawn.inputs)
    except Exception:  # a node that neither evaluates alone: no room then
        room["room"] = [np.asarray(0.0) for _ in next(iter(wanted.values()))]


def plain(message: str) -> str:
    """A message without its numbers and names, to tell kinds of failures apart."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", message)[:70]
