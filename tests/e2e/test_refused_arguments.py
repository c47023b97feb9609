"""Executors, builds and schedules that are given something else: our error says what was got and what is wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.contrib import debug_executor
from armillary.driver.library import GraphLibrary
from armillary.errors import ArmillaryError, InternalError, ScheduleError, TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.runtime import vm

CPU = armillary.cpu()
ARRAY = np.ones((2, 3), np.float32)  # whose truth value numpy refuses to say


class NoArray:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise ValueError("none")


def module() -> IRModule:
    x = relay.var("x", shape=(2, 3))
    return IRModule({"main": relay.Function([x], relay.nn.relu(x))})


@functools.cache
def library() -> GraphLibrary:
    return relay.build(module(), "llvm")


def schedule() -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((2, 3), name="a")
    b = te.compute((2, 3), lambda i, j: a[i, j] + 1.0, name="b")
    return te.create_schedule(b.op), [a, b]


def lower(args: object, name: object = "f") -> object:
    return armillary.lower(schedule()[0], args, name)


def build(name: object) -> object:
    s, args = schedule()
    return armillary.build(s, args, "llvm", name=name)


def pragma(kind: object) -> object:
    s, (_, b) = schedule()
    return s[b].pragma(b.op.axis[0], kind)


def machine(device: object = CPU) -> vm.VirtualMachine:
    return vm.VirtualMachine(relay.vm.compile(module(), target="llvm"), device)


def executor(mod: object = None, device: object = CPU, params: object = None, kind: object = "aot") -> object:
    return relay.create_executor(kind, module() if mod is None else mod, device, "llvm", params)


def debugger(folder: object) -> object:
    found = library()
    return debug_executor.create(found.get_graph_json(), found.get_lib(), CPU, dump_root=folder)


CASES: dict[str, tuple[Callable[[], object], type[ArmillaryError], str]] = {
    "a machine's device": (lambda: machine(ARRAY), TypeMismatch, "VirtualMachine: .* is no device"),
    "a machine's function": (lambda: machine().invoke([0], ARRAY), TypeMismatch, "name is list, wanted a string"),
    "code": (lambda: vm.Executable.load_exec(None, library().get_lib()), TypeMismatch, "is NoneType, wanted bytes"),
    "code as text": (lambda: vm.Executable.load_exec("x", library().get_lib()), TypeMismatch, "is str, wanted bytes"),
    "an executor's module": (lambda: executor(b"x"), TypeMismatch, "mod is bytes, wanted a module"),
    "an executor's device": (lambda: executor(device=ARRAY), TypeMismatch, "the device is ndarray"),
    "an executor's params": (lambda: executor(params=ARRAY), TypeMismatch, "params are ndarray, wanted a dictionary"),
    "an executor's kind": (lambda: executor(kind=ARRAY), UnsupportedError, "kinds: debug, graph"),
    "a build's params": (
        lambda: relay.build(module(), "llvm", params=ARRAY),
        TypeMismatch,
        "params are ndarray, wanted a dictionary",
    ),
    "a folder": (lambda: debugger(5), TypeMismatch, "dump_root is int, wanted a folder's path"),
    "arguments of loops": (lambda: lower(5), TypeMismatch, "needs args=, .* got int"),
    "arguments as bytes": (lambda: lower(b"ab"), TypeMismatch, "needs args=, .* got bytes"),
    "a name of loops": (lambda: lower(schedule()[1], 5), TypeMismatch, "the name is int, wanted a string"),
    "a name of a kernel": (lambda: build(ARRAY), TypeMismatch, "the name is ndarray, wanted a string"),
    "a pragma": (lambda: pragma(ARRAY), ScheduleError, "its kind is ndarray, wanted a string"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_what_was_wanted(name: str) -> None:
    act, kind, message = CASES[name]
    with pytest.raises(kind, match=message) as caught:
        act()
    assert not isinstance(caught.value, InternalError)


@pytest.mark.parametrize("kind", ["aot", "graph", "vm", "debug"])
@pytest.mark.parametrize("value", [NoArray(), [[1], [2, 3]]], ids=["no array", "ragged"])
def test_what_numpy_makes_no_array_of_is_no_argument(kind: str, value: object) -> None:
    run = relay.create_executor(kind, module(), CPU, "llvm").evaluate()
    with pytest.raises(TypeMismatch, match=f"an argument is {type(value).__name__}, which numpy makes no array of"):
        run(value)
