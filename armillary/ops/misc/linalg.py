"""einsum: sums of products named by letters. Decomposed into transpose, reshape, multiply, sum and nn.batch_matmul.

In: an equation such as "bij,bjk->bik" and one tensor per term; "..." stands for axes that broadcast. Out: the tensor it
names. Invariant: terms are joined two at a time, left to right, and a letter is summed away as soon as nothing that
follows needs it; a join with letters on both sides to keep is one batched matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.extent import Known, divides, typical
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._types import check_kind, check_same_dtype, f32, i32, tuple_fields
from armillary.ops.elementwise.broadcast import multiply, where
from armillary.ops.nn._windows import reshape_to, same_dim
from armillary.ops.reduce.reduce import sum_
from armillary.ops.shape.creation import eye, zeros
from armillary.ops.shape.shape import expand_dims, squeeze, transpose
from armillary.ops.shape.transform import broadcast_to
from armillary.relay.expr import Expr, Tuple, TupleGetItem, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, constant_value, get_op
from armillary.relay.types import TensorType, TupleType, Type

WHOLE = 16  # columns of the blocks in which a dense layer keeps its weights; others would be narrower
MIN_COLUMNS = 64  # of the matrices of a right-hand side that are multiplied one by one
DOTS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # stand-ins for the axes of "...", taken from the end


@record
class EinsumAttrs:
    """`equation`: "ij,jk->ik"; without "->", the result has the letters met once, in alphabetical order."""

    equation: str


@record
class Plan:
    """Letters of each term and of the result (axes of "..." have letters too), and the size of each letter."""

    terms: tuple[str, ...]
    result: str
    sizes: dict[str, Known]


einsum = Op("einsum", kind=Kind.OPAQUE, inputs=("*data",), doc="Sums of products of elements, named by letters.")
einsum.attrs(EinsumAttrs)


def parse(equation: str, shapes: Sequence[Sequence[Known]]) -> Plan:
    """Read an equation for inputs of the given shapes."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise TypeMismatch(f"einsum: {equation!r} names {len(terms)} inputs, got {len(shapes)}")
    _check_letters(equation, [*terms, right])
    spare = [c for c in DOTS if c not in equation]
    extra = max((len(s) - len(t.replace("...", "")) for s, t in zip(shapes, terms) if "..." in t), default=0)
    if extra < 0 or extra > len(spare):
        raise TypeMismatch(f"einsum: {equation!r} has too many or too few letters for {[tuple(s) for s in shapes]}")
    dots = "".join(spare[:extra])
    full = tuple(_expand(equation, t, len(s), dots) for t, s in zip(terms, shapes, strict=True))
    if not arrow:
        letters = "".join(full)
        right = "..." + "".join(sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1))
    result = right.replace("...", dots)
    if len(set(result)) != len(result) or not set(result) <= set("".join(full)):
        raise TypeMismatch(f"einsum: the result of {equation!r} repeats a letter or has one that no input has")
    return Plan(full, result, _sizes(equation, full, shapes))


def _check_letters(equation: str, parts: Sequence[str]) -> None:
    for part in parts:
        rest = part.replace("...", "", 1)
        if not all(c.isascii() and c.isalpha() for c in rest):
            raise TypeMismatch(
                f"einsum: cannot read {part!r} in {equation!r}", hint='letters, ",", "->" and "..." only'
            )


def _expand(equation: str, term: str, ndim: int, dots: str) -> str:
    letters = len(term.replace("...", ""))
    missing = ndim - letters
    if missing < 0 or (missing and "..." not in term):
        raise TypeMismatch(f"einsum: term {term!r} of {equation!r} has {letters} letters, its input {ndim} dimensions")
    return term.replace("...", dots[len(dots) - missing :] if missing else "")


def _sizes(equation: str, terms: Sequence[str], shapes: Sequence[Sequence[Known]]) -> dict[str, Known]:
    sizes: dict[str, Known] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known == 1:
                sizes[letter] = size
            elif size != 1 and not same_dim(size, known):
                raise TypeMismatch(f"einsum: letter {letter!r} of {equation!r} has sizes {known} and {size}")
    return sizes


def _types(name: str, data: Type) -> tuple[TensorType, ...]:
    types = tuple_fields(name, data)
    check_same_dtype(name, types)
    check_kind(name, "its input", types[0], "numeric")
    return types


@einsum.infer
def infer_einsum(attrs: EinsumAttrs, data: Type) -> TensorType:
    types = _types("einsum", data)
    plan = parse(attrs.equation, [t.known for t in types])
    return TensorType(tuple(plan.sizes[c] for c in plan.result), types[0].dtype)


@einsum.flops
def einsum_flops(attrs: EinsumAttrs, types: Sequence[Type], _result: Type) -> int:
    """The definition: a product of all terms for each choice of all letters."""
    fields = _types("einsum", types[0])
    terms: Known = math.prod(parse(attrs.equation, [t.known for t in fields]).sizes.values())
    return 2 * len(fields) * typical(terms)


@einsum.reference
def einsum_reference(attrs: EinsumAttrs, data: Sequence[Array]) -> Array:
    return np.array(np.einsum(attrs.equation, *data)).astype(data[0].dtype)


# --- decomposition ------------------------------------------------------------------------------------------------


def _shape(expr: Expr) -> tuple[Known, ...]:
    ty = expr.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    return ty.known


def _without_ones(expr: Expr, letters: str, sizes: dict[str, Known]) -> tuple[Expr, str]:
    """A term that has one element along a letter where others have more is the same for all of these."""
    ones = [n for n, (c, size) in enumerate(zip(letters, _shape(expr), strict=True)) if size == 1 != sizes[c]]
    if not ones:
        return expr, letters
    return squeeze(expr, tuple(ones)), "".join(c for n, c in enumerate(letters) if n not in ones)


def _diagonal(expr: Expr, letters: str) -> tuple[Expr, str]:
    """Sum a repeated letter into one axis: mask what is off the diagonal, then sum the second axis away."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            shape, ty = _shape(expr), expr.checked_type
            assert isinstance(ty, TensorType), "a tensor"
            mask = reshape_to(
                eye(shape[first], shape[second], 0, "bool"),
                tuple(d if i in (first, second) else 1 for i, d in enumerate(shape)),
            )
            expr = sum_(where(mask, expr, zeros((1,) * len(shape), ty.dtype)), second)
            letters = letters[:second] + letters[second + 1 :]
    return expr, letters


def _drop(expr: Expr, letters: str, needed: str) -> tuple[Expr, str]:
    """Sum away the letters that nothing needs."""
    gone = tuple(i for i, c in enumerate(letters) if c not in needed)
    return (sum_(expr, gone), "".join(c for c in letters if c in needed)) if gone else (expr, letters)


def _arranged(expr: Expr, letters: str, wanted: str) -> Expr:
    """The tensor with axes in the order of `wanted`; a letter it lacks becomes an axis of size 1."""
    order = tuple(letters.index(c) for c in wanted if c in letters)
    if order != tuple(range(len(order))):
        expr = transpose(expr, order)
    for position, letter in enumerate(wanted):
        if letter not in letters:
            expr = expand_dims(expr, position)
    return expr


def _grouped(expr: Expr, letters: str, groups: Sequence[str], sizes: dict[str, Known]) -> Expr:
    """One axis per group of letters."""
    wanted = "".join(groups)
    arranged = _arranged(expr, letters, wanted)
    full = tuple(sizes[c] for c in wanted)
    if _shape(arranged) != full:
        arranged = broadcast_to(arranged, full)
    return reshape_to(arranged, tuple(math.prod(sizes[c] for c in g) for g in groups))


def _join(a: tuple[Expr, str], b: tuple[Expr, str], needed: str, sizes: dict[str, Known]) -> tuple[Expr, str]:
    """The product of two terms, summed over the letters nothing else needs."""
    (x, xs), (y, ys) = a, b
    summed = "".join(c for c in xs if c in ys and c not in needed)
    batch = "".join(c for c in xs if c in ys and c in needed)
    left = "".join(c for c in xs if c not in ys)
    right = "".join(c for c in ys if c not in xs)
    if not summed or not (left or right) or 0 in sizes.values():
        letters = "".join(dict.fromkeys(xs + ys))
        product = multiply(_arranged(x, xs, letters), _arranged(y, ys, letters))
        return _drop(product, letters, needed)
    stored, (outer, _, inner) = constant_value(y), ys.partition(summed)
    columns: Known = math.prod(sizes[c] for c in right)
    if not batch and stored is not None and divides(WHOLE, columns):  # packed once, by blocks
        turned = stored.transpose([ys.index(c) for c in right + summed])
        weight = turned.reshape(math.prod(turned.shape[: len(right)]), -1)
        product = get_op("nn.dense")(_grouped(x, xs, (left, summed), sizes), const(np.ascontiguousarray(weight)))
        return reshape_to(product, tuple(sizes[c] for c in left + right)), left + right
    width = typical(math.prod(sizes[c] for c in inner))
    if not batch and outer and width >= MIN_COLUMNS:  # several matrices, as they lie
        lhs, rhs = _grouped(x, xs, ("", left, summed), sizes), _grouped(y, ys, (outer, summed, inner), sizes)
        product = get_op("nn.batch_matmul")(lhs, rhs, transpose_b=False)
        return reshape_to(product, tuple(sizes[c] for c in outer + left + inner)), outer + left + inner
    lhs = _grouped(x, xs, (batch, left, summed), sizes)
    is_turned = ys != batch + summed + right  # else it lies as a product wants it
    rhs = _grouped(y, ys, (batch, right, summed) if is_turned else (batch, summed, right), sizes)
    result = batch + left + right
    product = get_op("nn.batch_matmul")(lhs, rhs, transpose_b=is_turned)
    return reshape_to(product, tuple(sizes[c] for c in result)), result


def decomposed(plan: Plan, parts: Sequence[Expr]) -> Expr:
    """The result of a plan, from other operators."""
    terms = [_diagonal(*_without_ones(x, t, plan.sizes)) for x, t in zip(parts, plan.terms, strict=True)]
    current = terms[0]
    for position, following in enumerate(terms[1:], 1):
        needed = plan.result + "".join(t for _, t in terms[position + 1 :])
        here = _drop(*current, needed + following[1])
        there = _drop(*following, needed + here[1])
        current = _join(here, there, needed, plan.sizes)
    expr, letters = _drop(*current, plan.result)
    expr = _arranged(expr, letters, plan.result)
    shape = tuple(plan.sizes[c] for c in plan.result)
    return expr if _shape(expr) == shape else broadcast_to(expr, shape)


@einsum.decompose
def einsum_decompose(attrs: EinsumAttrs, data: Expr) -> Expr:
    ty = data.checked_type
    types = _types("einsum", ty)
    parts = data.fields if isinstance(data, Tuple) else tuple(TupleGetItem(data, i) for i in range(len(types)))
    assert isinstance(ty, TupleType), "checked by infer"
    return decomposed(parse(attrs.equation, [t.known for t in types]), parts)


@einsum.samples
def einsum_samples() -> Iterator[Sample]:
    for equation, shapes in (
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 2))),
        ("ij->ji", ((2, 3),)),
        ("ii->i", ((3, 3),)),
        ("ij->", ((2, 3),)),
        ("i,j->ij", ((2,), (3,))),
        ("...ii->...i", ((2, 3, 3),)),
        ("ij,ij->i", ((2, 3), (2, 3))),
        ("bhid,bhjd->bhij", ((2, 2, 3, 4), (2, 2, 5, 4))),
        ("ij,jk", ((2, 3), (3, 2))),
        ("a,ab,b->", ((2,), (2, 3), (3,))),
        ("...ij,...jk->...ik", ((2, 2, 3), (1, 3, 2))),
        ("i,i", ((4,), (4,))),
        ("ij,jk->ik", ((2, 1), (3, 4))),
        ("bij,bjk->bik", ((1, 2, 3), (5, 3, 4))),
        ("ij,ij->", ((1, 3), (2, 3))),
        ("ii,i->i", ((1, 1), (3,))),
        ("ij,jk,kl->il", ((2, 3), (1, 4), (4, 1))),
        ("td,edf->etf", ((3, 4), (2, 4, 64))),
        ("td,edf->tef", ((3, 4), (2, 4, 67))),
    ):
        yield Sample(EinsumAttrs(equation), (tuple(f32(*s) for s in shapes),))


@einsum.bad_samples
def einsum_bad_samples() -> Iterator[BadSample]:
    yield BadSample(EinsumAttrs("ij,jk->ik"), ((f32(2, 3),),), "names 2 inputs, got 1")
    yield BadSample(EinsumAttrs("ij,jk->ik"), ((f32(2, 3), f32(4, 2)),), "has sizes 3 and 4")
    yield BadSample(EinsumAttrs("i->i"), ((f32(2, 3),),), "has 1 letters, its input 2 dimensions")
    yield BadSample(EinsumAttrs("ij->ik"), ((f32(2, 3),),), "one that no input has")
    yield BadSample(EinsumAttrs("i$->i"), ((f32(2, 3),),), "cannot read")
    yield BadSample(EinsumAttrs("i,i->i"), ((f32(2), i32(2)),), "got int32, wanted float32")
