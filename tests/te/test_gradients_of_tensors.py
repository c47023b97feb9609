"""`te.gradient` against differences, in float64; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir, topi
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.te.autodiff.solve import solve
from armillary.tir.simplify import simplify
from armillary.tir.substitute import substitute_expr

STEP = 1e-5


def _tensor(name, *shape):
    return te.placeholder(shape, "float64", name=name)


def _compiled(outputs, inputs):
    run = armillary.build(te.create_schedule([o.op for o in outputs]), [*inputs, *outputs])

    def call(*arrays):
        results = [np.zeros([int(n) for n in o.shape], str(o.dtype)) for o in outputs]
        run(*arrays, *results)
        return results

    return call


def _check(out, inputs, low=-1.0, high=1.0, by=None):
    """Compare with central differences of a weighted sum of the output, at some elements of each input."""
    rng = np.random.default_rng(5)
    sizes = [[int(n) for n in t.shape] for t in inputs]
    arrays = [
        rng.uniform(low, high, n) if t.dtype.is_float else rng.integers(0, 4, n).astype("int32")
        for t, n in zip(inputs, sizes, strict=True)
    ]
    by = by or list(inputs)
    head = te.placeholder(out.shape, "float64", name="head")
    weights = rng.uniform(-1, 1, [int(n) for n in out.shape])
    found = _compiled(te.gradient(out, by, head), [*inputs, head])(*arrays, weights)
    forward = _compiled([out], inputs)
    for tensor, gradient in zip(by, found, strict=True):
        which = inputs.index(tensor)
        for _ in range(6):
            at = tuple(rng.integers(0, n) for n in arrays[which].shape)
            sums = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][at] += sign * STEP
                sums.append((forward(*moved)[0] * weights).sum())
            np.testing.assert_allclose(gradient[at], (sums[0] - sums[1]) / (2 * STEP), rtol=1e-5, atol=1e-6)


A, B = _tensor("a", 4, 4), _tensor("b", 4, 4)
K = te.reduce_axis((0, 4), "k")
SHIFTED = te.reduce_axis((1, 4), "s")
X, W = _tensor("x", 1, 2, 6, 6), _tensor("w", 3, 2, 3, 3)
ELEMENTS = {
    "sums": lambda i, j: A[i, j] + te.exp(A[j, i]) * B[i, j] - B[j, j],
    "quotient": lambda i, j: A[i, j] / (2.0 + B[j, i] * B[j, i]),
    "chosen": lambda i, j: te.max(A[i, j], B[i, j]) + te.min(A[j, i] * 2.0, B[i, i]),
    "branches": lambda i, j: te.if_then_else(i < 2, A[i + 2, j] * B[i, j], tir.Select(j > 1, A[i, j], 0.5 * B[i, j])),
    "steps": lambda i, j: te.floor(A[i, j]) + te.trunc(A[j, i]) * B[i, j],
    "narrow": lambda i, j: A[i, j].astype("float32").astype("float64") * 0.0 + B[i, j],
}
UNARY = "exp log sqrt rsqrt sigmoid tanh sin cos tan sinh cosh asin acos atan asinh atanh erf abs log2 log10 log1p exp2"


@pytest.mark.parametrize("name", ELEMENTS)
def test_elementwise(name):
    _check(te.compute((4, 4), ELEMENTS[name]), [A, B])


@pytest.mark.parametrize("name", UNARY.split())
def test_functions(name):
    x = _tensor("x", 5)
    function = getattr(te, name, None) or getattr(tir, name)
    _check(te.compute((5,), lambda i: function(x[i]) * 2.0), [x], 0.2, 0.8)


def test_powers():
    _check(te.compute((4, 4), lambda i, j: te.power(A[i, j], B[j, i])), [A, B], 0.5, 2.0)


def _product(*axis):
    return te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, t), name="prod")


REDUCTIONS = {
    "sum": lambda i, j: te.sum(A[i, K] * B[K, j], axis=K),
    "sum-where": lambda i, j: te.sum(A[i, K] * B[K, j], axis=K, where=tir.all(j > K, B[0, 0] < 9.0)),
    "sum-from-one": lambda i, j: te.sum(A[i, SHIFTED - 1] * B[SHIFTED, j], axis=SHIFTED),
    "largest": lambda i, j: te.max(A[i, K] * B[K, j] + 5.0, axis=K),
    "smallest": lambda i, j: te.min(A[i, K] * B[K, j], axis=K),
    "clamped": lambda i, j: te.sum(A[K, K] - B[tir.min(j + K, 3), j] * A[i, K], axis=K),
    "product": lambda i, j: _product()(A[i, K] + B[K, i], axis=K),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    _check(te.compute((4, 4), REDUCTIONS[name], name="out"), [A, B])


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 1), (1, 0, 2), (2, 1, 2)])
def test_convolutions(stride, padding, dilation):
    _check(topi.nn.conv2d(X, W, stride, padding, dilation), [X, W])


NETWORKS = {
    "average": lambda: topi.nn.pool2d(X, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "avg"),
    "max": lambda: topi.nn.pool2d(X, [3, 3], [2, 2], [1, 1], [0, 0, 0, 0], "max"),
    "softmax": lambda: topi.nn.softmax(topi.reshape(X, (2, 36))),
    "parts": lambda: topi.concatenate(tuple(reversed(topi.split(X, 2, 2))), 2),
    "transposed": lambda: topi.transpose(topi.reshape(X, (12, 6))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_topi(name):
    _check(NETWORKS[name](), [X])


def test_a_tensor_that_is_read_twice_gets_both():
    inner = topi.nn.conv2d(X, _same := _tensor("w2", 2, 2, 3, 3), 1, 1, 1)
    _check(X + topi.nn.conv2d(X + inner, _same, 1, 1, 1), [X, _same])


def test_elements_looked_up_at_run_time():
    places = te.placeholder((5,), "int32", name="places")
    _check(topi.take(A, places), [A, places], by=[A])


def test_without_a_head_the_jacobian_comes():
    out = te.compute((3,), lambda i: A[i, 0] * A[0, i])
    (found,) = te.gradient(out, A)
    assert [int(n) for n in found.shape] == [3, 4, 4]
    x = np.random.default_rng(1).standard_normal((4, 4))
    (got,) = _compiled([found], [A])(x)
    wanted = np.zeros((3, 4, 4))
    for i in range(3):
        wanted[i, i, 0] += x[0, i]
        wanted[i, 0, i] += x[i, 0]
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_equal_elements_share_the_gradient_of_their_maximum():
    x = _tensor("x", 4)
    out = te.compute((1,), lambda i: te.max(x[K], axis=K))
    head = _tensor("head", 1)
    (got,) = _compiled(te.gradient(out, x, head), [x, head])(np.array([1.0, 3.0, 3.0, 2.0]), np.array([1.0]))
    assert got.tolist() == [0.0, 0.5, 0.5, 0.0]


def test_what_is_not_read_has_no_gradient():
    out = te.compute((4,), lambda i: A[i, i] * 2.0)
    (got,) = _compiled(te.gradient(out, B, _tensor("head", 4)), [B])(np.ones((4, 4)))
    assert not got.any()


def test_convolutions_are_not_summed_over_all_positions():
    (by_data,) = te.gradient(topi.nn.conv2d(X, W, 1, 0, 1), X, _tensor("head", 1, 3, 4, 4))
    axes = sorted(int(a.dom.extent) for a in by_data.op.reduce_axis)
    assert axes == [3, 3, 3]  # output channels and taps, not the 4 by 4 positions


def test_reshape_is_solved_by_its_digits():
    (by_data,) = te.gradient(topi.reshape(X, (6, 12)), X, _tensor("head", 6, 12))
    assert [int(a.dom.extent) for a in by_data.op.reduce_axis] == [6]


def test_solutions_are_exactly_the_assignments():
    rng = np.random.default_rng(11)
    for _ in range(6):
        axes = {te.var(n): int(rng.integers(1, 5)) for n in "abc"}
        names = list(axes)
        factors = rng.integers(-2, 3, (2, 3)).tolist()
        offsets = rng.integers(-2, 3, 2).tolist()
        wanted = [te.var("p"), te.var("q")]
        lines = [
            sum((v * k for v, k in zip(names, row, strict=True)), tir.const(c))
            for row, c in zip(factors, offsets, strict=True)
        ]
        found = solve(list(zip(lines, wanted, strict=True)), axes)
        every = [dict(zip(names, at, strict=True)) for at in np.ndindex(*axes.values())]
        for p in range(-3, 4):
            for q in range(-3, 4, 2):
                goal = {wanted[0]: p, wanted[1]: q}
                meant = [at for at in every if [_value(line, at) for line in lines] == [p, q]]
                got = []
                for left in np.ndindex(*found.left.values()):
                    known = goal | dict(zip(found.left, left, strict=True))
                    if all(_value(c, known) for c in found.conditions):
                        got.append({v: known.get(v, _value(found.values.get(v, v), known)) for v in names})
                assert sorted(map(str, got)) == sorted(map(str, meant))


def _value(item, known):
    return int(simplify(substitute_expr(item, {v: tir.const(k) for v, k in known.items()})))


def test_refusals():
    with pytest.raises(TypeMismatch, match="wanted tensors of floats"):
        te.gradient(te.placeholder((3,), "int32"), A)
    with pytest.raises(TypeMismatch, match=r"the head has the shape \(3,\), wanted \(4, 4\) at its end"):
        te.gradient(te.compute((4, 4), lambda i, j: A[i, j]), A, _tensor("head", 3))
    with pytest.raises(UnsupportedError, match="'atan2' has no derivative here"):
        te.gradient(te.compute((4, 4), lambda i, j: te.atan2(A[i, j], B[i, j])), A)
    copied = te.extern((4, 4), [A], lambda ins, outs: tir.Evaluate(0), dtype="float64")
    with pytest.raises(UnsupportedError, match=r"is no plain te\.compute"):
        te.gradient(te.compute((4, 4), lambda i, j: copied[i, j]), A)
