"""Data types, matches, cells, recursion and polymorphic functions: types, texts, values."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.errors import ArmillaryError, ModelError, ParseError, TypeMismatch, UnsupportedError
from armillary.relay.prelude import Prelude
from armillary.relay.well_formed import verify_function

INT = relay.scalar_type("int32")


@pytest.fixture(scope="module")
def prelude():
    return Prelude()


def _const(value):
    return relay.const(value, "int32")


def _run(prelude, expr, kind="debug"):
    module = prelude.mod.copy()
    module["main"] = relay.Function([], expr)
    return relay.create_executor(kind, mod=module).evaluate()()


def _list(value):
    found = []
    while value.fields:
        found.append(value.fields[0])
        value = value.fields[1]
    return found


def _numbers(value):
    return [int(v.numpy()) for v in _list(value)]


def _of(prelude, *values):
    return prelude.to_list([_const(v) for v in values])


def _lambda(rule, count=1):
    params = [relay.var(f"x{k}", INT) for k in range(count)]
    return relay.Function(params, rule(*params))


def test_the_prelude_is_typed_and_its_text_reads_back(prelude):
    assert prelude.mod["map"].checked_type == relay.parse(prelude.mod.astext())["map"].checked_type
    assert str(prelude.mod["map"].checked_type) == "fn [A, B] (fn (A) -> B, List[A]) -> List[B]"
    assert armillary.ir.structural_equal(relay.parse(prelude.mod.astext()), prelude.mod)
    for name in prelude.mod:
        assert relay.transform.InferType()(prelude.mod)[name].checked_type.ret_type is not None


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("map", lambda p: p.map(_lambda(lambda x: x + x), _of(p, 1, 2, 3)), [2, 4, 6]),
        ("filter", lambda p: p.filter(_lambda(lambda x: relay.greater(x, _const(1))), _of(p, 3, 1, 2)), [3, 2]),
        ("concat", lambda p: p.concat(_of(p, 1), _of(p, 2, 3)), [1, 2, 3]),
        ("rev", lambda p: p.rev(_of(p, 1, 2, 3)), [3, 2, 1]),
        ("update", lambda p: p.update(_of(p, 1, 2, 3), _const(1), _const(9)), [1, 9, 3]),
        ("tl", lambda p: p.tl(_of(p, 1, 2, 3)), [2, 3]),
    ],
)
def test_functions_that_give_lists(prelude, name, make, expected):
    assert _numbers(_run(prelude, make(prelude))) == expected


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("hd", lambda p: p.hd(_of(p, 7, 8)), 7),
        ("nth", lambda p: p.nth(_of(p, 7, 8, 9), _const(2)), 9),
        ("length", lambda p: p.length(_of(p, 7, 8, 9)), 3),
        ("sum", lambda p: p.sum(_of(p, 7, 8, 9)), 24),
        ("foldl", lambda p: p.foldl(_lambda(lambda a, x: a - x, 2), _const(10), _of(p, 1, 2)), 7),
        ("foldr", lambda p: p.foldr(_lambda(lambda x, a: x - a, 2), _const(10), _of(p, 1, 2)), 1 - (2 - 10)),
        ("foldr1", lambda p: p.foldr1(_lambda(lambda x, a: x - a, 2), _of(p, 5, 3, 1)), 5 - (3 - 1)),
        ("id", lambda p: p.id(_const(4)), 4),
        ("iterate", lambda p: relay.Call(p.iterate(_lambda(lambda x: x * _const(3)), _const(3)), [_const(2)]), 54),
    ],
)
@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_functions_that_give_numbers(prelude, name, make, expected, kind):
    assert int(_run(prelude, make(prelude), kind).numpy()) == expected


def test_pairs_options_and_trees(prelude):
    pairs = _list(_run(prelude, prelude.zip(_of(prelude, 1, 2, 3), _of(prelude, 4, 5))))
    assert [[int(v.numpy()) for v in pair] for pair in pairs] == [[1, 4], [2, 5]]
    _, some, none = prelude.get_type("Option")
    n = relay.var("n", INT)
    down = relay.If(relay.equal(n, _const(0)), none(), some(relay.Tuple([n - _const(1), n])))  # counts down to one
    assert _numbers(_run(prelude, prelude.unfoldr(relay.Function([n], down), _const(3)))) == [3, 2, 1]
    _, rose = prelude.get_type("Tree")
    leaf = [rose(_const(k), prelude.to_list([])) for k in range(3)]
    tree = rose(_const(9), prelude.to_list(leaf))
    assert int(_run(prelude, prelude.size(tree)).numpy()) == 4
    doubled = _run(prelude, prelude.tmap(_lambda(lambda x: x + x), tree))
    assert [int(t.fields[0].numpy()) for t in _list(doubled.fields[1])] == [0, 2, 4]
    total, running = _run(
        prelude, prelude.map_accuml(_lambda(lambda a, x: relay.Tuple([a + x, a]), 2), _const(0), _of(prelude, 1, 2, 3))
    )
    assert int(total.numpy()) == 6 and _numbers(running) == [0, 1, 3]


def test_a_match_in_text():
    text = """
    type Shape { Circle(float32), Box(float32, float32), Point, }
    def @area(%s: Shape) -> float32 {
      match (%s) {
        Circle(%r) => 3f * %r * %r,
        Box(%w, _) => { let %two = 2f; %w * %two },
        _ => 0f,
      }
    }
    def @main(%w: float32) { (@area(Circle(%w)), @area(Box(%w, 1f)), @area(Point)) }
    """
    module = relay.parse(text)
    again = relay.parse(module.astext())
    assert armillary.ir.structural_equal(module, again)
    for kind in ("debug", "vm"):
        found = relay.create_executor(kind, mod=again).evaluate()(np.float32(2))
        assert [float(f.numpy()) for f in found] == [12, 4, 0]
    area = again["area"]
    assert str(area.body.checked_type) == "Tensor[(), float32]" and not relay.analysis.free_vars(area)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type A { X } type A { Y }", "the type A is defined twice"),
        ("type A { X } type B { X }", "X is defined twice"),
        ("type A { X(int32) } def @main(%a: A) { match (%a) { X => 1 } }", "X has 1 fields, the pattern 0"),
        ("type A { X } def @main(%a: A) { match (%a) { Y => 1 } }", "expected a pattern"),
        ("def @main(%a: int32) { ref(%a, %a) }", "ref takes 1 value"),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(ParseError, match=message):
        relay.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type A { X } type B { Y } def @main(%a: A) { match (%a) { Y => 1 } }", "the types A and B differ"),
        ("type A { X, Y } def @main(%a: A) { match (%a) { X => 1, Y => 1f } }", "differ"),
        ("def @main(%a: int32) { ref_read(%a) }", "the types .* and ref"),
        ("def @main() { let %r = ref(1); ref_write(%r, 1f) }", "differ"),
        ("def @main() { let %f = fn (%x) { %f(%f) }; %f }", "hold itself"),
        ("def @main(%x) { add(%x, 1) }", "variable %x has no type"),
    ],
)
def test_types_that_do_not_fit(text, message):
    with pytest.raises(TypeMismatch, match=message):
        relay.parse(text)


def test_cells_are_read_and_written_in_order():
    i, before, written, after = (relay.Var(n) for n in ("i", "before", "written", "after"))
    body = relay.Let(after, relay.RefRead(i), before * _const(10) + after)
    body = relay.Let(written, relay.RefWrite(i, _const(2)), body)
    body = relay.Let(i, relay.RefCreate(_const(1)), relay.Let(before, relay.RefRead(i), body))
    function = relay.Function([], body)
    assert function.checked_type.ret_type == INT and str(i.checked_type) == "ref(Tensor[(), int32])"
    for kind in ("debug", "vm"):
        found = relay.create_executor(kind, mod=armillary.IRModule.from_expr(function)).evaluate()()
        assert int(found.numpy()) == 12
    assert armillary.ir.structural_equal(relay.parse_expr(function.astext()), function)


def test_recursion_needs_no_written_result():
    module = armillary.IRModule()
    up, n = relay.GlobalVar("up"), relay.var("n", INT)
    more = n + up(n - _const(1))
    module[up] = relay.Function([n], relay.If(relay.equal(n, _const(0)), _const(0), more))
    assert relay.transform.InferType()(module)["up"].checked_type == relay.FuncType([INT], INT)
    assert int(relay.create_executor("vm", mod=module).evaluate(up)(4).numpy()) == 10


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_a_while_loop_grows_a_tensor(kind):
    i, rows = relay.var("i", INT), relay.var("rows", relay.TensorType((relay.Any(), 1), "int32"))

    def body(i, rows):
        return i + _const(1), relay.concatenate([rows, relay.reshape(i, (1, 1))], axis=0)

    loop = relay.loops.while_loop(lambda i, rows: relay.less(i, _const(4)), [i, rows], body)
    start = relay.var("start", INT)
    result = relay.TupleGetItem(loop(start, relay.reshape(_const(7), (1, 1))), 1)
    module = armillary.IRModule.from_expr(relay.Function([start], result))
    found = relay.create_executor(kind, mod=module).evaluate()(np.int32(1))
    np.testing.assert_array_equal(found.numpy(), [[7], [1], [2], [3]])


def test_parameters_get_their_types_from_use():
    x, f = relay.var("x", INT), relay.Var("f")
    function = relay.Function([x, f], relay.Call(f, [x]), INT)
    assert function.checked_type == relay.FuncType([INT, relay.FuncType([INT], INT)], INT)


def test_a_polymorphic_function_is_used_at_two_types():
    a = relay.TypeVar("A")
    x, same = relay.Var("x", a), relay.GlobalVar("same")
    module = armillary.IRModule({same: relay.Function([x], x, a, [a])})
    module["main"] = relay.Function([], relay.Tuple([same(_const(1)), same(relay.const(2.5))]))
    assert str(relay.transform.InferType()(module)["main"].checked_type.ret_type) == (
        "(Tensor[(), int32], Tensor[(), float32])"
    )
    one, half = relay.create_executor("debug", mod=module).evaluate()()
    assert int(one.numpy()) == 1 and float(half.numpy()) == 2.5


def test_global_functions_are_values():
    text = """
    def @one() -> int32 { 1 }
    def @two() -> int32 { 2 }
    def @main(%p: bool) { %0 = if (%p) { @one } else { @two }; %0() }
    """
    module = relay.parse(text)
    assert armillary.ir.structural_equal(relay.parse(module.astext()), module)
    assert int(relay.create_executor("debug", mod=module).evaluate()(False).numpy()) == 2


def test_passes_keep_what_they_do_not_know(prelude):
    module = prelude.mod.copy()
    one = _const(1) + _const(1)
    module["main"] = relay.Function([], prelude.sum(prelude.to_list([one])))
    folded = relay.transform.FoldConstant()(module)
    assert folded.type_definitions == module.type_definitions and "add" not in folded["main"].astext()
    assert int(relay.create_executor("debug", mod=folded).evaluate()().numpy()) == 2


def test_what_compiles_refuses_data_types(prelude):
    with pytest.raises(ArmillaryError):
        _run(prelude, prelude.length(_of(prelude, 1)), "graph")


def test_names_of_modules_and_types(prelude):
    header, cons, nil = prelude.mod.get_type("List")
    assert header == prelude.mod.get_global_type_var("List") and nil is prelude.mod.get_constructor(nil.tag)
    assert cons.tag != nil.tag and cons.belong_to == header
    with pytest.raises(ModelError, match="the module has no type 'Heap'"):
        prelude.mod.get_type("Heap")
    with pytest.raises(ModelError, match="there is no module"):
        armillary.IRModule().import_from_std("strings.rly")
    with pytest.raises(ModelError, match="there is no module"):
        armillary.IRModule().import_from_std(["prelude.rly"])
    with pytest.raises(AttributeError, match="the prelude has no function"):
        prelude.reduce  # noqa: B018


def test_no_clause_fits(prelude):
    with pytest.raises(UnsupportedError, match="no clause of the match fits Nil"):
        _run(prelude, prelude.sum(prelude.tl(prelude.to_list([]))))


def test_dead_code_elimination_keeps_what_writes_cells():
    text = """
    def @f(%r: ref(int32)) -> int32 { let %v = ref_read(%r); let %u = ref_write(%r, %v + 1); %v }
    def @main() -> int32 { let %r = ref(0); let %y = @f(%r); let %z = @f(%r); %z }
    """
    module = relay.parse(text)
    for inline_once in (False, True):
        after = relay.transform.DeadCodeElimination(inline_once=inline_once)(module)
        assert armillary.ir.structural_equal(after, module)
        assert int(relay.create_executor("debug", mod=after).evaluate()().numpy()) == 1
    plain = relay.parse("def @f() -> int32 { 1 }\ndef @main() -> int32 { let %y = @f(); 2 }")
    assert "let" not in relay.transform.DeadCodeElimination()(plain).astext()


def test_inline_takes_values_and_leaves_entries():
    text = """
    def @one(Inline=1) -> int32 { 1 }
    def @entry(%x: int32, Inline=1) -> int32 { @one() + %x }
    def @main(%p: bool) -> int32 { %0 = if (%p) { @one } else { fn () -> int32 { 2 } }; %0() }
    """
    after = relay.transform.Inline()(relay.parse(text))
    assert sorted(after) == ["entry", "main"] and "@one" not in after.astext()
    assert int(relay.create_executor("debug", mod=after).evaluate()(True).numpy()) == 1


def test_a_block_in_parentheses():
    assert int(relay.create_executor().evaluate(relay.parse_expr("(let %a = 1; %a + 3) * 2")).numpy()) == 8


def test_kernels_of_a_module_that_is_not_fused_are_extracted():
    x = relay.var("x", shape=(2, 3))
    found = relay.analysis.extract_fused_functions(armillary.IRModule.from_expr(relay.nn.relu(relay.exp(x))))
    (kernel,) = found.values()
    assert kernel.get_attr("Primitive") == 1 and kernel.body.op.name == "nn.relu"


def test_visitors_meet_matches_and_cells(prelude):
    class Names(relay.ExprVisitor):
        def __init__(self):
            super().__init__()
            self.found = []

        def visit_var(self, var):
            self.found.append(var.name_hint)

    _, cons, nil = prelude.mod.get_type("List")
    head, tail, given = relay.var("head"), relay.var("tail"), relay.var("given")
    pattern = relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternVar(tail)])
    match = relay.Match(given, [relay.Clause(pattern, tail)])
    cell = relay.RefRead(relay.RefCreate(match))
    names = Names()
    names.visit(cell)
    assert {"given", "tail"} <= set(names.found)
    assert relay.ExprMutator().visit(cell) is cell

    class Other(relay.ExprMutator):
        def visit_var(self, var):
            return nil() if var is given else var

    assert "given" not in str(Other().visit(cell)) and "given" in str(cell)


def test_type_variables_are_listed_in_order():
    a, b, c = (relay.TypeVar(name) for name in "abc")
    ty = relay.FuncType([c], relay.TupleType([b]), [a, b])
    assert relay.analysis.all_type_vars(ty) == [a, b, c]
    assert relay.analysis.bound_type_vars(ty) == [a, b]
    assert relay.analysis.free_type_vars(ty) == [c]
    x = relay.Var("x", relay.TupleType([a, INT]))
    let = relay.Let(x, relay.Var("y"), x)
    assert relay.analysis.free_type_vars(let) == [a]
    function = relay.Function([x], x, None, [a])
    assert relay.analysis.bound_type_vars(function) == [a] and relay.analysis.free_type_vars(function) == []
    with pytest.raises(TypeMismatch, match="expected a type or a relay expression"):
        relay.analysis.free_type_vars(3)


def test_a_variable_of_an_incomplete_type_takes_that_of_its_value():
    x = relay.Var("x", relay.IncompleteType())
    module = armillary.IRModule.from_expr(relay.Let(x, _const(1) + _const(2), x + x))
    typed = relay.transform.InferType()(module)
    assert typed["main"].checked_type.ret_type == INT


def test_a_gradient_through_a_cell_or_a_match_is_refused(prelude):
    x, cell, unit = relay.var("x", shape=(3,)), relay.Var("r"), relay.Var("u")
    written = relay.RefWrite(cell, relay.RefRead(cell) + relay.RefRead(cell))
    body = relay.Let(cell, relay.RefCreate(x), relay.Let(unit, written, relay.RefRead(cell)))
    with pytest.raises(UnsupportedError, match=r"a Ref\w+ has no gradient"):
        relay.transform.gradient(relay.Function([x], body))
    _, cons, nil = prelude.mod.get_type("List")
    head, tail = relay.var("head"), relay.var("tail")
    pattern = relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternVar(tail)])
    match = relay.Match(cons(x, nil()), [relay.Clause(pattern, head)], complete=False)
    with pytest.raises(UnsupportedError, match="has no gradient"):
        relay.transform.gradient(relay.Function([x], match), prelude.mod)


def test_each_pattern_has_variables_of_its_own(prelude):
    _, none, some = prelude.mod.get_type("Option")
    x, y = relay.var("x"), relay.var("y")
    first = relay.Clause(relay.PatternConstructor(some, [relay.PatternVar(x)]), x)
    again, other = (relay.Clause(relay.PatternVar(v), v) for v in (x, y))
    for clauses, is_fine in (([again], True), ([first, other], True), ([first, again], False)):
        match = relay.Match(none(), clauses)
        assert relay.analysis.well_formed(match) is is_fine
        assert relay.analysis.well_formed(relay.Tuple([match, x])) is False  # read where no pattern binds it
    with pytest.raises(ModelError, match="%x is bound twice"):
        verify_function(relay.Function([], relay.Match(none(), [first, again])), prelude.mod)
