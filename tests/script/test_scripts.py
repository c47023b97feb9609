# ruff: noqa: N803, N805  (buffers have capital letters, as scripts write them)
"""TVMScript: programs mean what their Python says, compile, and print back as themselves."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import script, te, tir
from armillary.base.node import post_order
from armillary.errors import ParseError, TypeMismatch
from armillary.script import ir as I
from armillary.script import tir as T
from armillary.tir.transform import (
    ConvertBlocksToOpaque,
    LowerInitBlock,
    LowerMatchBuffer,
    LowerOpaqueBlock,
    PlanAndUpdateBufferAllocationLocation,
)

RNG = np.random.default_rng(7)


def _floats(*shape: int) -> np.ndarray:
    return RNG.random(shape, dtype=np.float32)


def _run(function: object, *args: object) -> object:
    return armillary.build(function, target="llvm")(*args)


def _round_trip(function: tir.PrimFunc) -> None:
    armillary.ir.assert_structural_equal(function, script.from_source(function.script()))


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
    n = T.int32()
    A = T.match_buffer(a, (n, 24))
    B = T.match_buffer(b, (16, 24))
    C = T.match_buffer(c, (n, 16))
    for i0, j0, k0 in T.grid(n, 16, 24):
        with T.block("C"):
            i, j, k = T.axis.remap("SSR", [i0, j0, k0])
            with T.init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[j, k]


def test_a_reduction_block_computes() -> None:
    a, b, c = _floats(8, 24), _floats(16, 24), np.zeros((8, 16), np.float32)
    _run(matmul, a, b, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-5)
    _round_trip(matmul)


def test_a_block_says_what_its_body_touches() -> None:
    block = matmul.body.block.body.body.body.body.block
    assert [r.buffer.name for r in block.reads] == ["A", "B"]
    assert [r.buffer.name for r in block.writes] == ["C"]
    assert [axis.kind for axis in block.iter_vars] == ["data", "data", "reduce"]


def test_each_pass_over_blocks_takes_one_part_away() -> None:
    module = armillary.IRModule({"main": matmul})
    passes = [
        PlanAndUpdateBufferAllocationLocation(),
        LowerInitBlock(),
        ConvertBlocksToOpaque(),
        LowerMatchBuffer(),
        LowerOpaqueBlock(),
    ]
    for step in passes:
        module = step(module)
    assert "block" not in str(module) and "if k0 == 0" in str(module)
    a, b, c = _floats(3, 24), _floats(16, 24), np.zeros((3, 16), np.float32)
    _run(module, a, b, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-5)


def test_loops_of_all_kinds_conditions_and_lets() -> None:
    @T.prim_func
    def program(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), limit: T.int32):
        scratch = T.decl_buffer((64,), "float32")
        for i in T.parallel(8):
            for j in T.vectorized(8):
                scratch[i * 8 + j] = A[i * 8 + j] * T.float32(2)
        for i in T.serial(1, 64):
            low: T.float32 = T.min(scratch[i], scratch[i - 1])
            if i < limit and not (i == 5 or 40 <= i < 44):
                B[i] = T.exp(low, dtype="float32")
            else:
                B[i] = low if i % 2 == 0 else -low
        for i in T.unroll(1):
            B[i] = T.Select(limit > 3, T.float32(1), T.float32(0))

    a, b = _floats(64), np.zeros(64, np.float32)
    _run(program, a, b, 30)
    low = np.minimum(2 * a[1:], 2 * a[:-1])
    i = np.arange(1, 64)
    taken = (i < 30) & ~((i == 5) | ((i >= 40) & (i < 44)))
    np.testing.assert_allclose(b[1:], np.where(taken, np.exp(low), np.where(i % 2 == 0, low, -low)), rtol=1e-5)
    assert b[0] == 1
    _round_trip(program)


def test_memory_of_other_buffers_and_vectors() -> None:
    @T.prim_func
    def program(a: T.handle("float32"), B: T.Buffer((4, 8), "float32")):
        A = T.decl_buffer((32,), "float32", data=a)
        flat = T.Buffer((32,), "float32", data=B.data)
        held = T.allocate([8], "float32", "global")
        rows = T.decl_buffer((8,), "float32", data=held)
        for i in range(4):
            rows[0:8:1] = A[i * 8 : i * 8 + 8 : 1] + T.broadcast(T.float32(1), 8)
            for j in range(8):
                flat[i * 8 + j] = rows[j]

    a, b = _floats(32), np.zeros((4, 8), np.float32)
    _run(program, a, b)
    np.testing.assert_allclose(b, a.reshape(4, 8) + 1, rtol=1e-6)
    _round_trip(program)


def test_parts_of_buffers_have_names() -> None:
    @T.prim_func
    def program(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i0, j0 in T.grid(2, 2):
            with T.block("tile"):
                i, j = T.axis.remap("SS", [i0, j0])
                source = T.match_buffer(A[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4], (4, 4))
                target = T.match_buffer(B[i * 4 : i * 4 + 4, j * 4 : j * 4 + 4], (4, 4))
                for x, y in T.grid(4, 4):
                    target[x, y] = source[y, x]

    a, b = _floats(8, 8), np.zeros((8, 8), np.float32)
    _run(program, a, b)
    tiles = a.reshape(2, 4, 2, 4).transpose(0, 3, 2, 1).reshape(8, 8)
    np.testing.assert_array_equal(b, tiles)
    _round_trip(program)


def test_predicates_axes_with_ranges_and_buffers_of_blocks() -> None:
    @T.prim_func
    def program(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
        T.func_attr({"tir.noalias": True, "note": [1, 2]})
        held = T.alloc_buffer((10,), "float32")
        for i0, i1 in T.grid(3, 4):
            with T.block("copy"):
                T.where(i0 * 4 + i1 < 10)
                i = T.axis.spatial(10, i0 * 4 + i1)
                T.block_attr({"kind": "copy"})
                held[i] = A[i]
        for i in range(10):
            with T.block("add"):
                v = T.axis.S((0, 10), i)
                T.reads(held[v])
                T.writes(B[v])
                B[v] = held[v] + T.Cast("float32", v)

    a, b = _floats(10), np.zeros(10, np.float32)
    _run(program, a, b)
    np.testing.assert_allclose(b, a + np.arange(10), rtol=1e-6)
    assert program.attrs["note"] == (1, 2)
    _round_trip(program)


def test_values_are_returned() -> None:
    @T.prim_func
    def product(x: T.int8, y: T.int8) -> T.int8:
        T.evaluate(T.ret(x * y, dtype="int8"))

    @T.prim_func
    def root(n: T.int32) -> T.int32:
        if n < 0:
            return -1
        for i in range(n):
            if i * i >= n:
                return i
        return 0

    @T.prim_func
    def above(x: T.float32) -> T.bool:
        return x > 2.0

    assert [_run(product, 7, 9), _run(product, 100, 9)] == [63, np.array(900).astype(np.int8)]
    compiled = armillary.build(root, target="llvm")
    assert [compiled(n) for n in (-3, 0, 1, 5, 50)] == [-1, 0, 0, 3, 8]
    assert _run(above, 1.0) is False and _run(above, 3.0) is True
    _round_trip(root)


def test_what_a_function_returns_survives_a_package(tmp_path) -> None:
    @T.prim_func
    def half(x: T.float32) -> T.float32:
        return x / T.float32(2)

    armillary.build(half, target="llvm").export_library(str(tmp_path / "half.tar"))
    assert armillary.runtime.load_module(str(tmp_path / "half.tar"))(5.0) == 2.5


def test_a_module_is_a_class() -> None:
    @I.ir_module
    class Module:
        @T.prim_func
        def double(A: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = A[i] * 2.0

        @T.prim_func(private=True)
        def triple(A: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = A[i] * 3.0

    assert sorted(Module) == ["double", "triple"]
    assert Module["double"].attrs.get("global_symbol") == "double"
    assert Module["triple"].attrs.get("global_symbol") is None
    armillary.ir.assert_structural_equal(Module, script.from_source(Module.script()))
    values = np.arange(4, dtype=np.float32)
    armillary.build(Module, target="llvm")["double"](values)
    assert values.tolist() == [0, 2, 4, 6]


def test_names_around_a_script_are_known_in_it() -> None:
    size, scale = 6, T.meta_var(3)

    @T.prim_func
    def program(A: T.Buffer((size,), "int32")):
        for i in range(size):
            factor = T.meta_var(scale.value + 1)
            A[i] = A[i] * factor

    values = np.arange(6, dtype=np.int32)
    _run(program, values)
    assert values.tolist() == [0, 4, 8, 12, 16, 20]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A[0] = unknown", "name 'unknown' is not defined"),
        ("A[0, 0] = 1.0", "has 1 dimensions, got 2 indices"),
        ("del A", "Delete is not part of the language"),
        ("A[0] @= A[1]", "line 3: TypeError: unsupported operand"),
        ("for i in [1, 2]:\n        pass", "is no loop"),
        ("x, y = T.grid(2, 2)", "2 names for 0 values"),
        ("B = T.decl_buffer((4,), 'float32', data=T.handle())", "nothing here owns"),
    ],
)
def test_what_is_no_program_is_refused_by_line(text: str, message: str) -> None:
    source = f"@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    {text}\n"
    with pytest.raises((ParseError, TypeMismatch), match=message):
        script.from_source(source)


@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"])
def test_augmented_assignments_compute_as_python_does(op: str) -> None:
    source = f"@T.prim_func\ndef f(A: T.Buffer((3,), 'int32')):\n    for i in range(3):\n        A[i] {op}= i + 2\n"
    program = script.from_source(source)
    values = np.array([29, 7, 12], np.int32)
    wanted = [eval(f"{v} {op} {i + 2}") for i, v in enumerate(values.tolist())]
    _run(program, values)
    assert values.tolist() == wanted


def test_a_parameter_needs_a_type() -> None:
    with pytest.raises(ParseError, match="parameter A has no type"):
        script.from_source("@T.prim_func\ndef f(A):\n    pass\n")


def test_lowered_functions_print_back_and_build() -> None:
    lowered = armillary.lower(matmul)["matmul"]
    again = script.from_source(lowered.script())
    armillary.ir.assert_structural_equal(lowered, again)
    a, b, c = _floats(4, 24), _floats(16, 24), np.zeros((4, 16), np.float32)
    _run(again, a, b, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-5)


@pytest.mark.parametrize("index", [None, "int64"])
def test_tensor_expressions_become_blocks(index: str | None) -> None:
    k = te.reduce_axis((0, 24), "k")
    a, b = te.placeholder((8, 24), name="a"), te.placeholder((16, 24), name="b")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="c")
    d = te.compute((8, 16), lambda i, j: c[i, j] + 1, name="d")
    function = te.create_prim_func([a, b, d], index)
    blocks: list[str] = []
    tir.stmt_functor.post_order_visit(
        function.body, lambda s: blocks.append(s.name_hint) if isinstance(s, tir.Block) else None
    )
    assert sorted(blocks) == ["c", "d", "root"]
    assert function.body.block.alloc_buffers[0].name == "c"
    assert function.body.block.body[0].var.dtype == (index or "int32")
    x, y, z = _floats(8, 24), _floats(16, 24), np.zeros((8, 16), np.float32)
    _run(function, x, y, z)
    np.testing.assert_allclose(z, x @ y.T + 1, rtol=1e-5)
    _round_trip(function)


def test_tuple_reductions_and_several_outputs_become_blocks() -> None:
    def combine(x, y):
        return tir.Select(x[1] >= y[1], x[0], y[0]), tir.Select(x[1] >= y[1], x[1], y[1])

    argmax = te.comm_reducer(combine, lambda t0, t1: (tir.const(-1, t0), te.min_value(t1)))
    m, n = te.var("m"), te.var("n")
    k = te.reduce_axis((0, n), "k")
    index, value = te.placeholder((m, n), "int32", "index"), te.placeholder((m, n), "float32", "value")
    where, most = te.compute((m,), lambda i: argmax((index[i, k], value[i, k]), axis=k), name="argmax")
    twice, more = te.compute((m,), lambda i: (most[i] * 2, where[i] + 1), name="both")
    function = te.create_prim_func([index, value, where, most, twice, more])
    values = _floats(5, 7)
    places = np.broadcast_to(np.arange(7, dtype=np.int32), (5, 7)).copy()
    found = [np.zeros(5, t) for t in ("int32", "float32", "float32", "int32")]
    _run(function, places, values, *found)
    np.testing.assert_array_equal(found[0], values.argmax(1))
    np.testing.assert_array_equal(found[2], values.max(1) * 2)
    np.testing.assert_array_equal(found[3], values.argmax(1) + 1)


def test_recurrences_and_ragged_sums_become_plain_loops() -> None:
    x = te.placeholder((6, 6), name="x")

    def ragged(i):
        axis = te.reduce_axis(tir.Range.from_min_extent(0, i), "r")
        return te.sum(x[i, axis], axis)

    total = te.compute((6,), ragged, name="total")
    function = te.create_prim_func([x, total])
    values, result = _floats(6, 6), np.full(6, 9, np.float32)
    _run(function, values, result)
    np.testing.assert_allclose(result, [values[i, :i].sum() for i in range(6)], rtol=1e-5)


def test_renewed_functions_share_no_definition():
    @T.prim_func
    def doubled(a: T.handle, b: T.handle):
        m = T.int32()
        A = T.match_buffer(a, (m, 4))
        B = T.match_buffer(b, (m, 4))
        for i, j in T.grid(m, 4):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)

    renewed = tir.stmt_functor.renew_defs(doubled)
    armillary.ir.assert_structural_equal(doubled, renewed)
    kinds = (tir.Var, tir.Buffer, tir.IterVar)
    own, others = ({n for n in post_order(f) if isinstance(n, kinds)} for f in (doubled, renewed))
    assert len(own) == len(others) > 8
    assert not own & others
    assert renewed.params[0].data is not doubled.params[0].data
    x, got = np.arange(8, dtype="float32").reshape(2, 4), np.zeros((2, 4), "float32")
    armillary.build(renewed)(x, got)
    np.testing.assert_array_equal(got, 2 * x)


def test_functions_are_known_by_their_symbols_and_by_their_names() -> None:
    @T.prim_func
    def doubled(A: T.Buffer((4,), "float32")) -> None:
        for i in T.serial(4):
            A[i] = A[i] * 2.0

    library = armillary.build(armillary.IRModule({"main": doubled}), target="llvm")
    assert library.kernels == ("doubled",)
    values = np.ones(4, np.float32)
    for name in ("main", "doubled"):
        assert library.implements_function(name)
        library[name](values)
    assert values.tolist() == [4.0] * 4
    twice = armillary.build(armillary.IRModule({"a": doubled, "b": doubled}), target="llvm")
    assert twice.kernels == ("a", "b")  # they share a symbol


def test_modules_may_come_by_target() -> None:
    @T.prim_func
    def first(A: T.Buffer((1,), "float32")) -> None:
        A[0] = A[0] + 1.0

    @T.prim_func
    def second(A: T.Buffer((1,), "float32")) -> None:
        A[0] = A[0] * 3.0

    target = armillary.target.Target("llvm")
    library = armillary.build({target: armillary.IRModule({"main": first}), "llvm": second}, target_host=target)
    values = np.ones(1, np.float32)
    library["first"](values)
    library["second"](values)
    assert values.tolist() == [6.0]
    assert target.get_kind_attr("RelayToTIR") is None
    for wrong in (lambda: armillary.build({}), lambda: armillary.build({target: first}, target="llvm")):
        with pytest.raises(TypeMismatch, match="build: got"):
            wrong()
    with pytest.raises(TypeMismatch, match="wanted functions compiled for llvm"):
        armillary.build({"llvm": first, "c": second})


def test_conversions_and_types_are_written_as_scripts_do() -> None:
    source = (
        "@T.prim_func\ndef f(A: T.Buffer((8,), 'float32'), B: T.Buffer((8,), 'int32')):\n    for i in range(8):\n"
        "        B[i] = T.cast(A[i], 'int32') + T.cast('int32', A[i]) + T.Cast('int32', A[i])\n"
    )
    values, result = np.arange(8, dtype=np.float32), np.zeros(8, np.int32)
    _run(script.from_source(source), values, result)
    np.testing.assert_array_equal(result, 3 * np.arange(8))
    access = "T.evaluate(T.tvm_access_ptr(T.type_annotation(dtype='float32'), A.data, 0, 4, 1, dtype='handle'))"
    text = str(script.from_source(f"@T.prim_func\ndef f(A: T.Buffer((8,), 'float32')):\n    {access}\n"))
    assert "access_ptr" in text


def test_a_module_of_blocks_runs_the_passes_over_blocks_first() -> None:
    names: list[str] = []

    class Names:
        def run_before_pass(self, module: object, info: armillary.transform.PassInfo) -> None:
            names.append(info.name)

    @T.prim_func
    def twice_the_sums(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")) -> None:
        last = T.alloc_buffer((1,), "float32")
        sums = T.alloc_buffer((16,), "float32")
        for i in range(16):
            with T.block("sums"):
                v = T.axis.spatial(16, i)
                if v == 0:
                    last[0] = 0.0
                last[0] = last[0] + A[v]
                sums[v] = last[0]
        for i in range(16):
            with T.block("twice"):
                v = T.axis.spatial(16, i)
                B[v] = sums[v] * 2.0

    with armillary.transform.PassContext(instruments=[Names()]):
        library = armillary.build(twice_the_sums, target="llvm")
    listed = (  # the era's list of passes for modules with blocks; own passes stand between
        "LowerInitBlock PlanAndUpdateBufferAllocationLocation ConvertBlocksToOpaque CompactBufferAllocation "
        "LowerMatchBuffer FlattenBuffer BF16Legalize NarrowDataType Simplify LoopPartition VectorizeLoop "
        "InjectVirtualThread InjectDoubleBuffer StorageRewrite UnrollLoop Simplify RemoveNoOp RewriteUnsafeSelect "
        "HoistIfThenElse"
    )
    order = listed.split()
    assert [name for name in names if name.removeprefix("tir.") in order] == [f"tir.{name}" for name in order]
    assert "tir.StorageFlatten" not in names
    data, got = _floats(16), armillary.nd.array(np.zeros(16, "float32"))
    library(armillary.nd.array(data), got)  # a value that stays from one iteration to the next is not moved inside
    np.testing.assert_allclose(got.numpy(), np.cumsum(data) * 2, rtol=1e-5)


def test_buffers_of_blocks_move_inside_and_shrink_before_matches_are_resolved() -> None:
    @T.prim_func
    def windows(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 4), "float32")) -> None:
        rows = T.alloc_buffer((8, 16), "float32")
        for i in range(8):
            with T.block("row"):
                v = T.axis.spatial(8, i)
                part = T.match_buffer(rows[v, 4:12], (8,), "float32")
                for j in range(8):
                    with T.block("twice"):
                        w = T.axis.spatial(8, j)
                        part[w] = A[v, w + 4] * 2.0
        for i, j in T.grid(8, 4):
            with T.block("sum"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = rows[v, w + 4] + rows[v, w + 8]

    module = armillary.IRModule({"main": windows})
    for step in (LowerInitBlock(), PlanAndUpdateBufferAllocationLocation(), ConvertBlocksToOpaque()):
        module = step(module)
    assert "alloc rows: Buffer[(8, 16)" in str(module)
    module = tir.transform.CompactBufferAllocation()(module)
    assert "alloc rows: Buffer[(8, 8)" in str(module) and "match part" in str(module)
    data, got = _floats(8, 16), np.zeros((8, 4), np.float32)
    _run(windows, data, got)
    np.testing.assert_array_equal(got, 2 * data[:, 4:8] + 2 * data[:, 8:12])


def test_a_buffer_of_each_row_lives_in_the_row() -> None:
    @T.prim_func
    def rows(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")) -> None:
        row = T.alloc_buffer((16,), "float32")
        for i in range(8):
            with T.block("row"):
                v = T.axis.spatial(8, i)
                for j in range(16):
                    with T.block("copy"):
                        w = T.axis.spatial(16, j)
                        row[w] = A[v, w]
                for j in range(16):
                    with T.block("turned"):
                        w = T.axis.spatial(16, j)
                        B[v, w] = row[15 - w]

    seen: list[str] = []

    @tir.transform.prim_func_pass(opt_level=0, name="user")
    def user(function: tir.PrimFunc, module: armillary.IRModule, context: object) -> tir.PrimFunc:
        seen.append("block" if "block" in str(function) else "loops")
        return function

    text = str(PlanAndUpdateBufferAllocationLocation()(armillary.IRModule({"main": rows})))
    assert text.index("alloc row") > text.index("for i") and text.index("alloc row") < text.index('"copy"')
    data, got = _floats(8, 16), np.zeros((8, 16), np.float32)
    with armillary.transform.PassContext(config={"tir.add_lower_pass": [(0, user), (1, user)]}):
        _run(rows, data, got)
    assert seen == ["block", "loops"]  # phase 0 stands in front of what lowers blocks
    np.testing.assert_array_equal(got, data[:, ::-1])
