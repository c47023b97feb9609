"""topi's functions about positions and parts: the argument order of scripts, the values of numpy."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import TypeMismatch

A = np.arange(12, dtype="float32").reshape(3, 4)
B = np.arange(20, dtype="float32").reshape(4, 5)
I = np.array([2, 0], "int32")  # noqa: E741
N = np.array([[1, 0, 2], [3, 3, 1]], "int32")
MATRIX = np.zeros((3, 3), "float32")
CASES = {
    "tensordot": (lambda a, b: topi.tensordot(a, b, 1), (A, B), A @ B),
    "tensordot_axes": (lambda a, b: topi.tensordot(a, b, ([1, 0], [1, 0])), (A, A), np.sum(A * A)),
    "gather": (lambda a, i: topi.gather(a, 1, i), (A[:2], N), np.take_along_axis(A[:2], N, 1)),
    "gather_nd": (lambda a, i: topi.gather_nd(a=a, indices=i), (A, N[:, :2] % 3), A[N[0, :2] % 3, N[1, :2] % 3]),
    "adv_index": (lambda a, i: topi.adv_index(a, [i, i]), (A, I), A[I, I]),
    "concatenate": (lambda a, b: topi.concatenate(a_tuple=(a, b), axis=1), (A, A), np.concatenate([A, A], 1)),
    "where": (topi.where, (A - 3, A, -A), np.where(A != 3, A, -A)),
    "shape": (lambda a: topi.shape(a, "int32"), (A,), np.array([3, 4])),
    "expand_like": (lambda a, b: topi.expand_like(a, b, [1]), (A[:, 0], A), np.repeat(A[:, :1], 4, 1)),
    "sparse_to_dense": (lambda i: topi.sparse_to_dense(i, [4], 7, 1), (I,), np.array([7, 1, 7, 1])),
    "matrix_set_diag": (
        lambda a, d: topi.transform.matrix_set_diag(a, d, (0, 1), "RIGHT_LEFT"),
        (MATRIX, np.array([[0, 1, 2], [3, 4, 5]], "float32")),
        np.array([[3, 1, 0], [0, 4, 2], [0, 0, 5]]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_take_the_arguments_of_scripts(name):
    function, arrays, expected = CASES[name]
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{k}") for k, a in enumerate(arrays)]
    made = function(*tensors)
    held = armillary.nd.array(np.zeros(np.shape(expected), str(made.dtype)))
    with armillary.target.Target("llvm"):
        schedule = topi.generic.schedule_injective(made) if "dot" not in name else te.create_schedule(made.op)
    armillary.build(schedule, [*tensors, made], "llvm")(*map(armillary.nd.array, arrays), held)
    np.testing.assert_allclose(held.numpy(), expected)


def test_wrong_arguments_are_named():
    a = te.placeholder((3, 4))
    with pytest.raises(TypeMismatch, match="align 'MIDDLE'"):
        topi.matrix_set_diag(a, a, 0, "MIDDLE")
    with pytest.raises(TypeMismatch, match="2 axes and 1 new ones, wanted 2"):
        topi.expand_like(a, a, [0])
