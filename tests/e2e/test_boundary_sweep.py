"""Every public function and class, called with arguments of wrong kinds: it works, or an ArmillaryError says why.

In: the public names of a module, and values of every kind that a script may pass by mistake, drawn by a fixed seed.
Out: a failure that names the call and the foreign exception. A call that does not fit the signature stays a TypeError.
"""

from __future__ import annotations

import atexit
import importlib
import inspect
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from enum import Enum
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import get_origin

import numpy as np
import pytest
from onnx import TensorProto, helper

import armillary
from armillary import InferenceSession, compute, relay, rpc, te, tir
from armillary.compute.graph import Graph, OperationRegistry
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import ArmillaryError, InternalError
from armillary.relay.dataflow_pattern import is_op, wildcard
from armillary.transform import PassContext

MODULES = [
    "armillary",
    "armillary.arith",
    "armillary.compute",
    "armillary.compute.graph",
    "armillary.contrib.cc",
    "armillary.contrib.graph_executor",
    "armillary.contrib.utils",
    "armillary.frontend",
    "armillary.instrument",
    "armillary.ir",
    "armillary.relay",
    "armillary.relay.analysis",
    "armillary.relay.backend",
    "armillary.relay.dataflow_pattern",
    "armillary.relay.op",
    "armillary.relay.op.contrib.arm_compute_lib",
    "armillary.relay.op.contrib.clml",
    "armillary.relay.testing",
    "armillary.relay.transform",
    "armillary.rpc",
    "armillary.runtime",
    "armillary.target",
    "armillary.te",
    "armillary.te.hybrid",
    "armillary.tir",
    "armillary.tir.analysis",
    "armillary.tir.transform",
    "armillary.topi",
    "armillary.transform",
]
WRITERS = {"export_library", "save", "download"}  # of files, wherever the arguments say
ENDS = {"close", "terminate"}
OWN_ERRORS = {"map_functions"}  # what the caller's function raises is the caller's
SECONDS = 30  # that a call with wrong arguments may take
LEFT_OUT = {
    "RPCSession",  # rpc.connect makes it
    "as_attrs",  # between ir.py and the constructors of functions
    "lazy_names",
    "state",  # for files of operators
}


def values() -> list[object]:
    x = relay.var("x", shape=(2, 3))
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0)
    words = ["x", "", "float32", "llvm", "\ud800", "a\0b", b"x"]
    numbers = [None, True, -1, 0, 1, 3, 1 << 70, 1.5, float("nan")]
    lists = [[], {}, (), [1, 2], (1, 2), {"a": 1}, [None], ["x"], [[1], [2, 3]], [a], [x, x]]
    nodes = [x, a, b, b.op.axis[0], tir.const(1, "int32"), tir.Var("v", "int32"), relay.TensorType((2, 3))]
    programs = [
        relay.Function([x], relay.tanh(x)),
        armillary.IRModule.from_expr(relay.tanh(x)),
        te.create_schedule(b.op),
    ]
    others = [object(), int, len, lambda *_: None, np.ones((2, 3), np.float32), np.array("a")]
    return [*words, *numbers, *lists, *nodes, *programs, *others, armillary.target.Target("llvm")]


def public(module: ModuleType) -> Iterator[tuple[str, Callable[..., object]]]:
    listed = getattr(module, "__all__", ())
    for name in sorted(listed or dir(module)):
        item = getattr(module, name, None) if not name.startswith("_") and name not in LEFT_OUT else None
        own = (getattr(item, "__module__", "") or "").startswith(module.__name__) or name in listed
        if callable(item) and own and not _is_pythons_own(item):
            yield name, item


def _is_pythons_own(item: object) -> bool:
    """Errors, enumerations, protocols and types of annotations, whose constructors are Python's."""
    is_protocol = bool(getattr(item, "_is_protocol", False))
    is_value = inspect.isclass(item) and issubclass(item, BaseException | Enum)
    return get_origin(item) is not None or is_protocol or is_value


def arguments(call: Callable[..., object], draw: random.Random, given: list[object]) -> list[object] | None:
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in by_position)
    return [draw.choice(given) for _ in range(draw.randint(least, len(by_position)))]


def is_of_the_signature(error: Exception) -> bool:
    trace = error.__traceback__
    inner = trace.tb_next if trace is not None else None
    words = ("positional argument", "keyword argument", "keyword-only argument")
    return isinstance(error, TypeError) and (inner is None or any(word in str(error) for word in words))


def sweep(module: str, rounds: int, seed: int) -> list[str]:
    draw, given, foreign = random.Random(seed), values(), []
    for name, call in public(importlib.import_module(module)):
        foreign += attempts(f"{module}.{name}", call, rounds, draw, given)
    return foreign


def objects() -> list[object]:
    """What a script has in hand: programs, schedules; once it has compiled, arrays, devices, libraries, executors."""
    x, a = relay.var("x", shape=(2, 3)), te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0)
    function, schedule = relay.Function([x], relay.tanh(x)), te.create_schedule(b.op)
    module = armillary.IRModule.from_expr(function)
    library = relay.build(module, target="llvm")
    device = armillary.cpu(0)
    executor = GraphModule(library["default"](device))
    kernels = library.get_lib()
    loops = armillary.build(schedule, [a, b], "llvm", name="f")
    programs = [function, function.body, x.type_annotation, module, schedule, schedule[b], b, b.op, b.op.axis[0]]
    nodes = [tir.Var("v", "int32"), tir.const(1, "int32"), tir.decl_buffer((4,), "float32"), tir.ir_builder.create()]
    others = [armillary.target.Target("llvm"), PassContext(), armillary.arith.Analyzer(), is_op("add"), wildcard()]
    made = [armillary.nd.array(np.ones((2, 3), np.float32)), device, executor, executor.module, library, kernels]
    library_of_arm = [
        Graph(),
        OperationRegistry(),
        compute.CLTuner(),
        compute.TensorInfo(),
        compute.HOG(),
        compute.Pyramid(),
    ]
    own = [loops, loops["f"], InferenceSession(model_bytes()), *library_of_arm]
    return [*programs, *nodes, *others, *made, *own, *sessions()]


def sessions() -> list[object]:
    """Sessions on devices elsewhere, and what they hold there."""
    server = rpc.Server("127.0.0.1", 0)
    atexit.register(server.terminate)
    found: list[object] = []
    for session in (rpc.LocalSession(), rpc.connect("127.0.0.1", server.port)):
        held = armillary.nd.array(np.ones((2, 3), np.float32), session.cpu())
        found += [session, session.cpu(), held]
    return [*found, server]


def model_bytes() -> bytes:
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", given[:1], given[1:])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return made


def sweep_methods(rounds: int, seed: int) -> list[str]:
    draw, given, foreign = random.Random(seed), values(), []
    for item in objects():
        for name in sorted(dir(type(item))):
            is_left_out = name.startswith("_") or name in WRITERS | ENDS | OWN_ERRORS
            if not is_left_out and callable(getattr(type(item), name, None)):
                foreign += attempts(f"{type(item).__name__}.{name}", getattr(item, name), rounds, draw, given)
    return foreign


def attempts(
    message: str, call: Callable[..., object], rounds: int, draw: random.Random, given: list[object]
) -> list[str]:
    """What calls with drawn arguments end in, where that is no error of ours."""
    foreign = []
    for _ in range(rounds):
        chosen = arguments(call, draw, given)
        if chosen is None:
            break
        problem = foreign_error(call, chosen)
        if problem is not None:
            foreign.append(f"{message}{tuple(map(ascii, chosen))}: {problem!r}")
    return foreign


class LateError(BaseException):
    """A call does not end."""


def _is_late(*_: object) -> None:
    raise LateError


def foreign_error(call: Callable[..., object], chosen: list[object]) -> BaseException | None:
    """The exception of a call that is none of ours, nor of its signature."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        call(*chosen)
    except LateError as error:
        return error
    except InternalError as error:
        return error
    except ArmillaryError:
        return None
    except Exception as error:  # what the test looks for
        return None if is_of_the_signature(error) else error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def run(rounds: int, seed: int, folder: Path) -> str:
    """The sweep in a process of its own: what it registers must not meet other tests."""
    command = [sys.executable, "-W", "ignore", __file__, str(rounds), str(seed)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_wrong_arguments_end_in_our_errors(tmp_path: Path) -> None:
    assert run(2, 1, tmp_path) == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_wrong_arguments(seed: int, tmp_path: Path) -> None:
    assert run(20, 100 + seed, tmp_path) == "[]\n"


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _is_late)
    COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
    with redirect_stdout(StringIO()):  # some functions print: `IRModule.show`
        FOUND = [item for module in MODULES for item in sweep(module, COUNT, SEED)] + sweep_methods(COUNT, SEED)
    print(FOUND)
