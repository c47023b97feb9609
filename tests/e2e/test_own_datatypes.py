"""Number types of a script's own, with a library of C that is compiled here: te, relay, what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import armillary as tvm
from armillary import relay, te
from armillary.base.dtype import DType
from armillary.base.node import structural_equal
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.target import datatype
from armillary.tir.parser import parse_function

FOLDER = Path(__file__).parents[2] / "examples" / "datatypes"
A, B = np.random.default_rng(4).normal(size=(2, 64)).astype("float32")
BRAIN, POSIT = "custom[brain]16", "custom[posites2]32"


@pytest.fixture(scope="module", autouse=True)
def example() -> Iterator[dict[str, float]]:
    sys.path.insert(0, str(FOLDER))
    import own_types

    yield own_types.main()
    sys.path.remove(str(FOLDER))


def _through(dtype: str, rule: object, *arrays: np.ndarray, lowered_first: bool = False) -> np.ndarray:
    """float32 in and out of a rule over elements of a type."""
    ins = [te.placeholder(a.shape, name=f"in{k}") for k, a in enumerate(arrays)]
    out = te.compute(arrays[0].shape, lambda i: rule(*(x[i].astype(dtype) for x in ins)).astype("float32"))
    schedule, args = te.create_schedule(out.op), [*ins, out]
    module = tvm.lower(schedule, args) if lowered_first else None
    function = tvm.build(module, target="llvm") if module is not None else tvm.build(schedule, args, "llvm")
    result = tvm.nd.empty(arrays[0].shape)
    function(*map(tvm.nd.array, arrays), result)
    return result.numpy()


def test_the_example_is_as_near_as_its_types(example: dict[str, float]) -> None:
    assert example[POSIT] < 1e-6 and example[BRAIN] < 0.05
    assert example["network 32"] < 2e-6 and example["network 16"] < 2e-3 and example["network 8"] < 0.1


@pytest.mark.parametrize("lowered_first", [False, True])
def test_a_bfloat16_by_hand_is_bfloat16(lowered_first: bool) -> None:
    kind = ml_dtypes.bfloat16
    a, b = A.astype(kind), B.astype(kind)
    rules = {
        lambda x, y: x + y: a + b,
        lambda x, y: x - y: a - b,
        lambda x, y: x * y: a * b,
        lambda x, y: x / y: a / b,
        lambda x, y: te.max(x, y): np.maximum(a, b),
        lambda x, y: te.min(x, y) * 0.1: np.minimum(a, b) * kind(0.1),
        lambda x, y: tvm.tir.Select(x > y, x, y): np.maximum(a, b),
    }
    for rule, wanted in rules.items():
        found = _through(BRAIN, rule, A, B, lowered_first=lowered_first)
        np.testing.assert_array_equal(found, wanted.astype("float32"))


def test_bits_of_posits_are_those_of_the_standard() -> None:
    import own_types

    numbers = np.array([1, 2, 3, 0.5, -1, np.pi, 0, np.inf, 1e30], "float32")
    of16 = [0x4000, 0x4800, 0x4C00, 0x3800, 0xC000, 0x4C91, 0, 0x8000, 0x7FFC]
    assert own_types.converted(numbers, "custom[posites2]16").numpy().tolist()[:8] == of16[:8]
    assert own_types.converted(numbers[:2], "custom[posites2]8").numpy().tolist() == [0x40, 0x48]
    of32 = own_types.converted(numbers[5:6], POSIT)
    assert of32.numpy().tolist() == [0x4C90FDB0] and of32.dtype == POSIT  # pi as a float has fewer bits
    assert own_types.converted(of32, "float32").numpy()[0] == np.float32(np.pi)


def test_maxima_begin_at_the_registered_least_value() -> None:
    x = te.placeholder((4, 16), name="X")
    k = te.reduce_axis((0, 16), "k")
    y = te.compute((4,), lambda i: te.max(x[i, k].astype(POSIT), axis=k))
    z = te.compute((4,), lambda i: y[i].astype("float32"))
    data, out = -np.abs(A.reshape(4, 16)) - 1, tvm.nd.empty((4,))
    tvm.build(te.create_schedule(z.op), [x, z], "llvm")(tvm.nd.array(data), out)
    np.testing.assert_allclose(out.numpy(), data.max(1), rtol=1e-7)
    with pytest.raises(UnsupportedError, match=r"custom\[brain\]16 has no least value"):
        te.compute((4,), lambda i: te.max(x[i, k].astype(BRAIN), axis=k))


def test_what_has_no_rule_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="Call of exp from brain has no rule for target llvm"):
        _through(BRAIN, te.exp, A)
    with pytest.raises(UnsupportedError, match="Cast of nobody from float has no rule"):
        _through("custom[nobody]32", lambda x: x, A)
    with pytest.raises(ConfigError, match="code 131 is of posites2"):
        datatype.register("another", 131)
    with pytest.raises(ConfigError, match="code 5 is of a type of DLPack"):
        datatype.register("another", 5)
    with pytest.raises(ConfigError, match="there is no data type 'another'"):
        datatype.get_type_code("another")
    with pytest.raises(ConfigError, match="a Cast has a dest_type_name"):
        datatype.register_op(datatype.lower_ite, "Cast", "llvm", "float")
    datatype.register_op(datatype.create_lower_func({8: "BrainAdd"}), "TruncMod", "llvm", "brain")
    assert datatype.get_type_code("brain") == 130 and datatype.get_type_name(131) == "posites2"
    assert datatype.get_type_registered(131) and not datatype.get_type_registered(140)


def test_numbers_are_not_taken_for_bits() -> None:
    with pytest.raises(TypeMismatch, match=r"an array of float32 holds no values of custom\[brain\]16"):
        tvm.nd.array(A, dtype=BRAIN)
    x = relay.var("x", shape=(64,), dtype=BRAIN)
    run = relay.create_executor("graph", tvm.IRModule.from_expr(relay.Function([x], x + x))).evaluate()
    with pytest.raises(TypeMismatch, match=r"an argument is float32, wanted the bits of custom\[brain\]16"):
        run(A)
    bits = A.astype(ml_dtypes.bfloat16).view("uint16")
    np.testing.assert_array_equal(run(bits).numpy().view(ml_dtypes.bfloat16), (bits.view(ml_dtypes.bfloat16) * 2))


def test_names_of_types() -> None:
    wide = DType("custom[posites2]32x4")
    assert (wide.lanes, wide.bits, wide.element, wide.storage) == (4, 32, POSIT, "uint32x4")
    assert DType(wide.numpy) == POSIT
    for wrong in ("custom[]8", "custom[a b]8", "custom[a]", "custom[a]0"):
        with pytest.raises(TypeMismatch, match="unknown dtype"):
            DType(wrong)


def test_programs_over_them_are_read_back() -> None:
    x = relay.var("x", shape=(3,), dtype=POSIT)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x + relay.cast(x, POSIT))))
    assert structural_equal(tvm.parser.parse(module.astext())["main"], module["main"])
    a = te.placeholder((4,), POSIT, name="A")
    b = te.compute((4,), lambda i: (a[i] + tvm.tir.const(1.5, POSIT)).astype("float32").astype(POSIT), name="B")
    loops = te.lower_schedule(te.create_schedule(b.op), [a, b])
    assert structural_equal(parse_function(str(loops)), loops)


def test_changing_a_dtype_changes_it_everywhere() -> None:
    x = relay.var("x", shape=(2, 4))
    body = relay.cast(relay.nn.relu(x) * relay.const(2.0), "float32")
    module = relay.frontend.ChangeDatatype("float32", "float16")(tvm.IRModule.from_expr(relay.Function([x], body)))
    main = relay.transform.InferType()(module)["main"]
    assert str(main.checked_type) == "fn (Tensor[(2, 4), float16]) -> Tensor[(2, 4), float16]"
    data = np.linspace(-1, 1, 8, dtype="float16").reshape(2, 4)
    found = relay.create_executor("graph", module).evaluate()(data)
    np.testing.assert_array_equal(found.numpy(), np.maximum(data, 0) * np.float16(2))
