"""ONNX's own backend test-suite, run in worker processes and counted.

In: an engine (armillary: compiled code; reference: the operators' references; onnxruntime) and the cases that come
with the onnx package (nothing is downloaded). Out: one `Result` per case: passed, unsupported (refused with a reason),
failed, crashed or timeout. Invariant: a case passes only if every expected output was compared; and it
cannot take the run down: a worker that dies or hangs is replaced. The
command is `armc onnx-score`; it keeps results in a file as they come, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TypeProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from armillary.backend import ENGINES, ArmillaryBackend
from armillary.errors import ArmillaryError, ArtifactError, ConfigError, Span, UnsupportedError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
STATUSES = ("passed", "unsupported", "failed", "crashed", "timeout")
ENGINE_NAMES = (*ENGINES, "onnxruntime")
Case = Any  # onnx's TestCase
# The expected values of these cases hold rounding noise of 2e-7 where the exact answer is 0; the suite allows 1e-7.
NOISE = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
DataSet = tuple[list[Any], list[Any]]


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of one case. `reason` is one line, empty when it passed."""

    case: str
    status: str
    reason: str
    seconds: float


def load_cases(pattern: str = "", kinds: tuple[str, ...] = KINDS) -> dict[str, Case]:
    """The suite's cases by name "<kind>/<test>", in the suite's order; `pattern` is a regular expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators overflow on purpose
        cases = {f"{kind}/{case.name}": case for kind in kinds for case in load_model_tests(kind=kind)}
    try:
        return {name: case for name, case in cases.items() if re.search(pattern, name)}
    except re.error as error:
        raise ConfigError(f"--filter {pattern!r} is no regular expression: {error}") from None


# --- one case ---------------------------------------------------------------------------------------------------------


def run_case(case: Case, engine: str) -> None:
    """Run one case; raises AssertionError on a wrong answer, UnsupportedError on a refusal."""
    model, data_sets = case_data(case)
    if not data_sets or not all(expected for _, expected in data_sets):
        raise AssertionError("there is nothing to compare: the case has no expected outputs")
    run = _ort_runner(model) if engine == "onnxruntime" else _own_runner(model, engine)
    for inputs, expected in data_sets:
        outputs = list(run(inputs))
        atol = max(case.atol, NOISE.get(case.name, 0.0))
        Runner.assert_similar_outputs(_tensors(expected, outputs), _tensors(outputs, expected), case.rtol, atol)


def _tensors(values: Any, other: Any) -> list[Any]:
    """The tensors of (nested) lists that have the same structure as `other`; the suite itself compares arrays only."""
    if isinstance(values, list | tuple) != isinstance(other, list | tuple):
        raise AssertionError(f"a sequence on one side only: {type(values).__name__} and {type(other).__name__}")
    if not isinstance(values, list | tuple):
        return [values]
    if len(values) != len(other):
        raise AssertionError(f"sequences of {len(values)} and {len(other)} elements")
    return [tensor for pair in zip(values, other, strict=True) for tensor in _tensors(*pair)]


def _own_runner(model: ModelProto, engine: str) -> Callable[[list[Any]], Any]:
    return ArmillaryBackend.prepare(model, engine=engine).run


def _ort_runner(model: ModelProto) -> Callable[[list[Any]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:  # its errors share no base class; all of them mean that it does not take the model
        raise UnsupportedError(str(error)[:300]) from None
    names = [value.name for value in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=False)))


def case_data(case: Case) -> tuple[ModelProto, list[DataSet]]:
    """A case's model, and the inputs and expected outputs of each of its data sets."""
    if case.model is not None:
        return case.model, [([_array(i) for i in ins], [_array(o) for o in outs]) for ins, outs in case.data_sets]
    if case.model_dir is None:
        return _light_model(Path(onnx.__file__).parent.parent / case.url)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    return model, [_stored_data(model, data) for data in sorted(folder.glob("test_data_set*"))]


def _array(value: object) -> object:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _light_model(path: Path) -> tuple[ModelProto, list[DataSet]]:
    """A real network with generated weights: its input is a ramp, its outputs lie beside it."""
    model = onnx.load(path)
    held = {t.name for t in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        if value.name not in held:
            shape = tuple(d.dim_value if d.HasField("dim_value") else 1 for d in value.type.tensor_type.shape.dim)
            count = int(np.prod(shape))
            inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    stem = path.with_suffix("")
    outputs = [Path(f"{stem}_output_{i}.pb") for i in range(len(model.graph.output))]
    return model, [(inputs, [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in outputs])]


def _stored_data(model: ModelProto, folder: Path) -> DataSet:
    def read(prefix: str, values: Any) -> list[Any]:
        count = len(list(folder.glob(f"{prefix}_*.pb")))
        return [_load_value((folder / f"{prefix}_{i}.pb").read_bytes(), values[i].type) for i in range(count)]

    return read("input", model.graph.input), read("output", model.graph.output)


def _load_value(data: bytes, kind: TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def judge(name: str, case: Case, engine: str) -> Result:
    """Run a case and name what happened."""
    start = time.perf_counter()
    status, reason = "passed", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_case(case, engine)
    except UnsupportedError as error:
        status, reason = "unsupported", error.message
    except ArmillaryError as error:
        status, reason = "failed", f"{type(error).__name__}: {error.message}"
    except Exception as error:  # the point of the suite: whatever escapes is a failure of this case
        status, reason = "failed", f"{type(error).__name__}: {error}"
    return Result(name, status, " ".join(reason.split())[:300], round(time.perf_counter() - start, 3))


# --- the pool ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Worker:
    process: Any  # a multiprocessing process
    pipe: Connection
    case: str = ""
    deadline: float = 0.0


def run_suite(cases: dict[str, Case], engine: str, jobs: int, timeout: float) -> Iterator[Result]:
    """Results as they come, from `jobs` processes forked from this one."""
    if engine not in ENGINE_NAMES:
        raise ConfigError(f"unknown engine {engine!r}", hint=f"one of {', '.join(ENGINE_NAMES)}")
    waiting = list(reversed(cases))
    workers = [_start(cases, engine) for _ in range(min(jobs, len(cases)))]
    try:
        for worker in workers:
            _give(worker, waiting, timeout)
        while any(w.case for w in workers):
            for index, worker in enumerate(workers):
                result = _collect(worker)
                if result is None:
                    continue
                yield result
                if result.status in ("crashed", "timeout"):
                    _stop(worker)
                    workers[index] = worker = _start(cases, engine)
                _give(worker, waiting, timeout)
            wait([w.pipe for w in workers if w.case], timeout=0.2)
    finally:
        for worker in workers:
            _stop(worker)


def _start(cases: dict[str, Case], engine: str) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, cases, engine), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection, cases: dict[str, Case], engine: str) -> None:
    """A worker: judge the cases named on the pipe until it closes."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(judge(name, cases[name], engine))


def _give(worker: _Worker, waiting: list[str], timeout: float) -> None:
    worker.case = waiting.pop() if waiting else ""
    if worker.case:
        worker.deadline = time.monotonic() + timeout
        worker.pipe.send(worker.case)


def _collect(worker: _Worker) -> Result | None:
    """The worker's result, or what became of it, or None while it is busy."""
    if not worker.case:
        return None
    try:
        if worker.pipe.poll():
            result: Result = worker.pipe.recv()
            return result
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return Result(worker.case, "crashed", f"the process ended with code {worker.process.exitcode}", 0.0)
    if time.monotonic() > worker.deadline:
        return Result(worker.case, "timeout", "the time limit was reached", 0.0)
    return None


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    if worker.process.is_alive():
        worker.process.kill()
    worker.process.join()


# --- the file of results ----------------------------------------------------------------------------------------------


def read_results(path: Path) -> dict[str, Result]:
    """Results of an earlier run (JSON lines); a last line that was cut short is dropped, another file is refused."""
    results: dict[str, Result] = {}
    if not path.exists():
        return results
    text = path.read_text("utf-8", "replace")
    for line in text.splitlines():
        try:
            row = json.loads(line)
            if row["status"] in STATUSES:
                results[row["case"]] = Result(row["case"], row["status"], row["reason"], row["seconds"])
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
    if text.strip() and not results:
        raise ArtifactError("the file holds no results of onnx-score", span=Span(str(path)), hint="name another file")
    return results


def result_line(result: Result) -> str:
    """One line of the file of results."""
    return json.dumps(dataclasses.asdict(result)) + "\n"


def counts(results: dict[str, Result]) -> dict[str, dict[str, int]]:
    """Number of cases by kind and status, and in "all"."""
    table = {kind: dict.fromkeys(STATUSES, 0) for kind in (*KINDS, "all")}
    for result in results.values():
        table[result.case.partition("/")[0]][result.status] += 1
        table["all"][result.status] += 1
    return table
