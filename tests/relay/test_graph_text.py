"""The text of graphs: what prints parses back; bad text is a ParseError with line and caret."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from armillary import relay
from armillary.base.node import structural_equal
from armillary.errors import ArmillaryError, ParseError
from armillary.ir import IRModule
from armillary.relay.analysis import structural_hash
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from armillary.relay.parser import parse, parse_expr
from armillary.relay.printer import astext
from armillary.relay.types import ANY_DIM, FuncType, TensorType, TupleType, tensor_type


def round_trip(module: IRModule) -> None:
    text = module.astext()
    again = parse(text)
    assert again.astext() == text
    assert list(again) == list(module)
    for name in module:
        if not any(isinstance(e, Call) and not isinstance(e.op, Expr) for e in [module[name].body]):
            assert structural_equal(again[name], module[name])


def test_text_of_a_function_is_stable() -> None:
    x = var("x", shape=(2,))
    y = relay.nn.relu(x)
    module = IRModule.from_expr(relay.add(relay.multiply(y, const(2.5)), y))
    assert module.astext() == (
        "def @main(%x: Tensor[(2,), float32]) {\n  %0 = nn.relu(%x);\n  %1 = multiply(%0, 2.5f);\n  add(%1, %0)\n}\n"
    )
    round_trip(module)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1),
        np.float32(-3),
        np.float32(1e-30),
        np.float32("inf"),
        np.float32("nan"),
        np.float64(0.1),
        np.float16(0.1),
        np.int32(-2),
        np.int64(-(2**63)),
        np.int64(2**40),
        np.uint8(255),
        np.int8(-128),
        np.bool_(True),
        np.uint64(2**64 - 1),
        np.float64(1e300),
        np.float32(3.4e38),
        np.float64(5e-324),
    ],
)
def test_scalar_constants_come_back_exactly(value: np.generic) -> None:
    again = parse_expr(astext(Constant(np.asarray(value))))
    assert isinstance(again, Constant)
    assert again.data.dtype == value.dtype
    assert again.data.tobytes() == np.asarray(value).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "float8_e4m3fn", "float64"])
@pytest.mark.parametrize("shape", [(1,), (2, 3), (0, 4), (2, 1, 3)])
def test_array_constants_come_back_exactly(dtype: str, shape: tuple[int, ...]) -> None:
    data = np.arange(int(np.prod(shape))).reshape(shape)
    module = IRModule.from_expr(Function((), const(data, dtype)))
    again = parse(module.astext())["main"].body
    assert again.data.dtype == module["main"].body.data.dtype
    assert structural_equal(again, module["main"].body)


def test_names_that_are_not_words_are_quoted_and_come_back() -> None:
    names = ["x", "x", "1", "layer.0.weight", "a b", "/conv1/Conv_output_0", 'q"uote', "naïve", "x.0", "input:0", ""]
    xs = [var(n, shape=(2,)) for n in names]
    round_trip(IRModule.from_expr(Function(tuple(xs), Tuple(tuple(xs)))))


def test_field_of_a_variable_is_not_confused_with_a_dotted_name() -> None:
    pair = Var("t", TupleType((tensor_type((2,)), tensor_type((3,)))))
    other = var("t.1", shape=(4,))
    module = IRModule.from_expr(Function((pair, other), Tuple((TupleGetItem(pair, 1), other))))
    round_trip(module)


def test_control_flow_functions_and_nested_scopes_round_trip() -> None:
    c, x = var("c", shape=(), dtype="bool"), var("x", shape=(2,))
    shared, v, w = relay.exp(x), Var("v"), Var("w")
    inner = Let(w, relay.negative(shared), relay.add(w, Let(v, shared, relay.nn.relu(v))))
    p = var("p", shape=(2,))
    kernel = Function((p,), relay.nn.relu(p), p.type_annotation, (("Primitive", 1), ("a b", "x\ny"), ("f", 1.5)))
    body = If(c, inner, If(c, Call(kernel, (shared,)), Call(kernel, (x,))))
    module = IRModule.from_expr(Function((c, x), body))
    module["helper"] = Function((x,), x, x.type_annotation)
    module["caller"] = Function((x,), Call(module.get_global_var("helper"), (x,)), x.type_annotation)
    round_trip(module)


def test_types_print_and_parse() -> None:
    types = [
        tensor_type(()),
        tensor_type((1,), "int8"),
        TensorType((ANY_DIM, 3), tensor_type(()).dtype),
        TupleType(()),
        TupleType((tensor_type((2,)),)),
        FuncType((tensor_type((1,)),), TupleType((tensor_type(()), tensor_type(())))),
    ]
    xs = [Var(f"x{k}", ty) for k, ty in enumerate(types)]
    module = IRModule.from_expr(Function(tuple(xs), Tuple(tuple(xs))))
    assert [p.type_annotation for p in parse(module.astext())["main"].params] == types


def test_two_functions_keep_their_own_constants() -> None:
    x = var("x", shape=(2,))
    functions = {n: Function((x,), relay.add(x, const(np.full(2, k, "float32")))) for k, n in enumerate(["main", "f"])}
    again = parse(IRModule(functions).astext())
    assert [float(again[n].body.args[1].data[0]) for n in ("main", "f")] == [0.0, 1.0]


def test_without_meta_data_the_type_stands_for_the_value() -> None:
    text = IRModule.from_expr(relay.add(var("x", shape=(2,)), const(np.ones(2, "float32")))).astext(False)
    assert "meta[relay.Constant][0] /* Tensor[(2,), float32] */" in text
    with pytest.raises(ParseError, match="show_meta_data=True"):
        parse(text)


def test_relay_era_text_with_comments_and_version_parses() -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(1, 3), float32] /* ty=Tensor[(1, 3), float32] */) -> Tensor[(1, 3), float32] {
      %0 = nn.relu(%x) /* ty=Tensor[(1, 3), float32] */;
      add(%0, 2f)
    }"""
    assert parse(text)["main"].body.args[1].data == np.float32(2)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("def @main(%x: Tensor[(2,), float32]) { add(%x, %y) }", "%y is not defined here", "1:48"),
        ("def @main(%x: Tensor[(2,), flot32]) { %x }", "unknown dtype 'flot32'", "1:28"),
        ("def @main(", "expected a parameter", "1:11"),
        ("def @main() { 1 }\ndef @main() { 1 }", "defined twice", "2:5"),
        ("def @main() { @other(1) }", "no function @other", "1:15"),
        ("nn.conv9d(1f)", "there is no operator 'nn.conv9d'", "1:1"),
        ("nn.relu(1f, slope=2)", "takes no attributes", "1:8"),
        ("clip(1f, a_mim=2)", "unknown attribute 'a_mim'", "1:5"),
        ("meta[relay.Constant][0]", "no #[metadata] section", "1:1"),
        ("meta[relay.Constant][7]\n#[metadata]\n{}\n", "has no relay.Constant number 7", "1:1"),
        ("1i99", "not a scalar", "1:1"),
        ("300u8", "does not fit uint8", "1:1"),
        ("65505f16", "does not fit float16", "1:1"),
        ("(1, 2", "expected ',' or ')'", "1:6"),
        ("free_var %x: Tensor[(-1,), float32]; %x", "write ? for an unknown one", "1:22"),
        ("(" * 3000, "nested more than", "1:81"),
        ("free_var %x: " + "(" * 3000, "nested more than", "1:94"),
        ("clip(1f, a_min=" + "[" * 3000, "nested more than", "1:96"),
        ("", "expected a value", "1:1"),
        ("1f 2f", "expected the end of the text", "1:4"),
        ("$", "unexpected character '$'", "1:1"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, message: str, place: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert f"<text>:{place}" in str(caught.value)


@pytest.mark.parametrize(
    "section",
    [
        "{",
        "[]",
        '{"relay.Constant": 3}',
        '{"relay.Constant": [{}]}',
        "[" * 100_000,
        '{"relay.Constant": [{"dtype": "float32", "shape": [2], "data": "AAAA"}]}',
        '{"relay.Constant": [{"dtype": "float32", "shape": [-2], "data": ""}]}',
        '{"relay.Constant": [{"dtype": "float32", "shape": [99999999999999], "data": ""}]}',
        '{"relay.Constant": [{"dtype": "flot", "shape": [], "data": ""}]}',
        '{"relay.Constant": [{"dtype": "float32", "shape": [], "data": "!!"}]}',
        '{"relay.Constant": [{"dtype": "handle", "shape": [], "data": ""}]}',
    ],
)
def test_damaged_meta_data_is_refused(section: str) -> None:
    with pytest.raises(ParseError):
        parse(f"meta[relay.Constant][0]\n#[metadata]\n{section}\n")


def test_mutated_text_never_escapes_as_another_exception() -> None:
    x = var("x", shape=(2, 3))
    text = IRModule.from_expr(relay.concatenate([relay.add(x, const(np.ones((2, 3), "float32"))), x], axis=0)).astext()
    seed = 20
    rng = random.Random(seed)
    for _ in range(500):
        damaged = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randint(0, 3)] = rng.choice(["", *'()%0[{],"-.é'])
        with contextlib.suppress(ArmillaryError):
            parse("".join(damaged))


def test_type_error_of_a_text_names_its_line() -> None:
    with pytest.raises(ArmillaryError, match=r"<text>:2"):
        parse("def @main(%x: Tensor[(2,), float32], %y: Tensor[(3,), float32]) {\n  add(%x, %y)\n}")


def test_structural_hash_ignores_names_and_sees_everything_else() -> None:
    def make(name: str, shape: tuple[int, ...] = (2,), value: float = 1.0, axis: int = 0) -> str:
        x = var(name, shape=shape)
        body = relay.concatenate([relay.add(x, const(value)), x], axis=axis)
        return structural_hash(Function((x,), body))

    assert make("x") == make("y")
    assert len({make("x"), make("x", (3,)), make("x", value=2.0), make("x", axis=-1)}) == 4


def test_deep_nesting_of_branches_prints() -> None:
    c, x = var("c", shape=(), dtype="bool"), var("x", shape=())
    e: Expr = x
    for _ in range(1100):
        e = If(c, e, x)
    assert astext(e).count("else") == 1100


def test_types_are_shown_on_request() -> None:
    x = var("x", shape=(2,))
    assert "/* Tensor[(2,), float32] */" in astext(relay.exp(relay.exp(x)), show_types=True)
