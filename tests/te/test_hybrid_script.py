"""te.hybrid: loops written as Python functions mean the same run by Python and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te
from armillary.errors import TypeMismatch, UnsupportedError

OFFSETS = [[1, 2], [3, 4]]


@te.hybrid.script
def outer_product(n, m, a, b):
    """A docstring is skipped."""
    c = output_tensor((n, m), a.dtype)  # noqa: F821  (a name of the language)
    for i in range(n):
        for j in range(m):
            assert i < n and j < m, "out of range"
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def several(a, rows):
    scale = 3.0
    b = output_tensor((a.shape[0] - 2,), a.dtype)  # noqa: F821
    c = output_tensor((2,), "int32")  # noqa: F821
    for i in range(a.shape[0] - 2):
        total = 0.0
        for j in range(3):
            total += a[i + j]
        if 0 <= i < 2 or i == 4:
            b[i] = total / scale
        else:
            b[i] = sqrt(max(total, a[i])) if i % 2 == 0 else 1.5  # noqa: F821
    for k in const_range(len(rows)):  # noqa: F821
        c[k] = rows[k] + OFFSETS[1][k] - int32(a[0])  # noqa: F821
    return b, c


@te.hybrid.script
def nested(a, b):
    c = outer_product(4, 4, a, b)
    d = output_tensor(c.shape, c.dtype)  # noqa: F821
    for i in parallel(4):  # noqa: F821
        for j in unroll(4):  # noqa: F821
            d[i, j] = c[i, j] + i * j
    return d


@te.hybrid.script
def wrong(a):
    b = output_tensor(a.shape, a.dtype)  # noqa: F821
    while a[0] > 0:
        b[0] = 1.0
    return b


@te.hybrid.script
def wrong_product(a):
    b = output_tensor(a.shape, a.dtype)  # noqa: F821
    b[0] @= a[0]
    return b


def _run(script, tensors, arrays, more=()):
    made = script(*tensors, *more)
    outs = made if isinstance(made, list) else [made]
    schedule = te.create_schedule([o.op for o in outs])
    function = armillary.build(schedule, [*tensors, *outs], "llvm")
    results = [np.zeros([int(n) for n in o.shape], str(o.dtype)) for o in outs]
    held = [armillary.nd.array(r) for r in results]
    function(*map(armillary.nd.array, arrays), *held)
    expected = script(*(a.copy() for a in arrays), *more)
    for got, want in zip(held, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    return schedule, outs


def test_locals_conditions_lists_and_captured_names_mean_what_python_means():
    a = te.placeholder((9,), name="a")
    schedule, outs = _run(several, [a], [np.linspace(1, 5, 9, dtype="float32")], [[5, 6]])
    text = te.hybrid.build(schedule, [a], outs, "again")
    array = np.linspace(2, 3, 9, dtype="float32")
    for got, want in zip(text(array), several(array, [5, 6]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_script_may_call_another_and_its_text_is_saved_and_parsed_again(tmp_path):
    a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    arrays = [np.arange(4, dtype="float32"), np.arange(4, dtype="float32") + 2]
    schedule, outs = _run(nested, [a, b], arrays)
    module = te.hybrid.build(schedule, [a, b], outs)
    module.save(str(tmp_path / "saved.py"))
    loaded = te.hybrid.HybridModule()
    loaded.load(str(tmp_path / "saved.py"))
    assert "parallel(0, 4)" in loaded.get_source() and loaded.name == "hybrid_func"
    np.testing.assert_allclose(loaded(*arrays), nested(*arrays))
    _run(loaded, [a, b], arrays)


def test_sizes_may_be_variables_and_asserts_stay():
    n, m = te.size_var("n"), te.size_var("m")
    a, b = te.placeholder((n,), name="a"), te.placeholder((m,), name="b")
    c = outer_product(n, m, a, b)
    module = te.hybrid.build(te.create_schedule(c.op), [a, b], [c])
    assert "n = a.shape[0]" in module.get_source() and "'out of range'" in module.get_source()
    np.testing.assert_allclose(module(np.arange(2.0), np.arange(3.0)), np.outer(np.arange(2.0), np.arange(3.0)))


def test_what_the_language_lacks_is_named_with_its_line():
    with pytest.raises(TypeMismatch, match=r"hybrid script wrong, line 4: While is not part of the language"):
        wrong(te.placeholder((2,)))
    with pytest.raises(TypeMismatch, match=r"script wrong_product, line 4: AugAssign is not part of the language"):
        wrong_product(te.placeholder((2,)))
    with pytest.raises(TypeMismatch, match="2 arguments, wanted 4"):
        outer_product(te.placeholder((2,)), 3)
    vectors = te.compute((8,), lambda i: te.if_then_else(i < 3, te.const(1.0), te.fma(1.0, 2.0, 3.0)), name="v")
    with pytest.raises(UnsupportedError, match="fma has no form in a hybrid script"):
        te.hybrid.build(te.create_schedule(vectors.op), [], [vectors])


def test_names_of_the_language_are_only_lent_to_a_script():
    outer_product(1, 1, np.ones(1), np.ones(1))
    assert "output_tensor" not in globals()


def test_an_output_that_another_stage_reads_need_not_be_an_argument():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] * 2, name="b")
    c = te.compute((4,), lambda i: b[i] + 1, name="c")
    function = armillary.build(te.create_schedule([b.op, c.op]), [a, c], "llvm")
    got = armillary.nd.array(np.zeros(4, "float32"))
    function(armillary.nd.array(np.arange(4, dtype="float32")), got)
    np.testing.assert_allclose(got.numpy(), np.arange(4) * 2 + 1)
