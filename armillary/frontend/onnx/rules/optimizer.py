"""ONNX's optimiser steps (ai.onnx.preview.training): Adagrad, Adam, Momentum. They are elementwise formulas.

In: learning rate R, update count T, then the tensors X, their gradients G, and the state of each, all of them grouped
by kind. Out: new tensors, then new states, in the same order. Invariant: gradients are inputs; differentiation is not
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._types import like_const
from armillary.ops.elementwise.broadcast import add, divide, greater, multiply, power, subtract, where
from armillary.ops.elementwise.cast import cast
from armillary.ops.elementwise.elementwise import sqrt
from armillary.relay.expr import Expr
from armillary.relay.types import TensorType

DOMAIN = "ai.onnx.preview.training"
Step = Callable[[dict[str, float], Expr, Expr, list[Expr]], tuple[Expr, ...]]


def _scaled(x: Expr, factor: float) -> Expr:
    return multiply(x, like_const(factor, x))


def _regularised(numbers: dict[str, float], x: Expr, gradient: Expr) -> Expr:
    factor = numbers["norm_coefficient"]
    return gradient if factor == 0.0 else add(_scaled(x, factor), gradient)


def _later(count: Expr, value: Expr, first: Expr) -> Expr:
    """`value` after the first update, whose count is 0."""
    return where(greater(count, like_const(0.0, count)), value, first)


def _momentum(nesterov: bool) -> Step:
    def step(numbers: dict[str, float], rate: Expr, count: Expr, tensors: list[Expr]) -> tuple[Expr, ...]:
        x, gradient, velocity = tensors
        pull = _regularised(numbers, x, gradient)
        beta = _later(count, like_const(numbers["beta"], count), like_const(1.0, count))
        velocity = add(_scaled(velocity, numbers["alpha"]), multiply(beta, pull))
        change = add(pull, _scaled(velocity, numbers["alpha"])) if nesterov else velocity
        return subtract(x, multiply(rate, change)), velocity

    return step


def _adagrad(numbers: dict[str, float], rate: Expr, count: Expr, tensors: list[Expr]) -> tuple[Expr, ...]:
    x, gradient, squares = tensors
    decay = add(_scaled(count, numbers["decay_factor"]), like_const(1.0, count))
    pull = _regularised(numbers, x, gradient)
    squares = add(squares, multiply(pull, pull))
    root = add(sqrt(squares), like_const(numbers["epsilon"], squares))
    return subtract(x, divide(multiply(divide(rate, decay), pull), root)), squares


def _adam(numbers: dict[str, float], rate: Expr, count: Expr, tensors: list[Expr]) -> tuple[Expr, ...]:
    x, gradient, mean, squares = tensors
    alpha, beta = numbers["alpha"], numbers["beta"]
    pull = _regularised(numbers, x, gradient)
    mean = add(_scaled(mean, alpha), _scaled(pull, 1 - alpha))
    squares = add(_scaled(squares, beta), _scaled(multiply(pull, pull), 1 - beta))
    root = add(sqrt(squares), like_const(numbers["epsilon"], squares))
    one = like_const(1.0, count)
    lost = {name: subtract(one, power(like_const(value, count), count)) for name, value in (("a", alpha), ("b", beta))}
    corrected = _later(count, divide(multiply(rate, sqrt(lost["b"])), lost["a"]), rate)
    moved = subtract(x, multiply(corrected, divide(mean, root)))
    after = numbers["norm_coefficient_post"]
    return moved if after == 0.0 else _scaled(moved, 1 - after), mean, squares


def _stepped(node: OnnxNode, step: Step, kinds: int, defaults: dict[str, Any]) -> list[Expr]:
    """One step for each tensor; `kinds` is the number of tensors that belong together."""
    groups, rest = divmod(len(node.inputs) - 2, kinds)
    if rest or groups < 1:
        count = len(node.inputs)
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: {count} inputs are no R, T and groups of {kinds}")
    numbers = {name: float(node.float(name, default)) for name, default in defaults.items()}
    columns: list[tuple[Expr, ...]] = []
    for k in range(groups):
        tensors = [node.input(2 + k + groups * kind) for kind in range(kinds)]
        shapes = {node.type_of(2 + k + groups * kind).shape for kind in range(kinds)}
        if len(shapes) > 1:
            raise TypeMismatch(f"{node.op_type} node {node.name!r}: tensor {k} and its state have shapes {shapes}")
        ty = tensors[0].checked_type
        dtype = str(ty.dtype) if isinstance(ty, TensorType) else "float32"
        columns.append(step(numbers, cast(node.input(0), dtype), cast(node.input(1), dtype), tensors))
    return [column[kind] for kind in range(len(columns[0])) for column in columns]


@from_onnx("Momentum", domain=DOMAIN)
def momentum(node: OnnxNode) -> list[Expr]:
    step = _momentum(node.string("mode") == "nesterov")
    return _stepped(node, step, 3, {"alpha": 0.0, "beta": 0.0, "norm_coefficient": 0.0})


@from_onnx("Adagrad", domain=DOMAIN)
def adagrad(node: OnnxNode) -> list[Expr]:
    return _stepped(node, _adagrad, 3, {"decay_factor": 0.0, "epsilon": 1e-6, "norm_coefficient": 0.0})


@from_onnx("Adam", domain=DOMAIN)
def adam(node: OnnxNode) -> list[Expr]:
    numbers = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "norm_coefficient": 0.0, "norm_coefficient_post": 0.0}
    return _stepped(node, _adam, 4, numbers)
