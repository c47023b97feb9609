"""Sums over axes whose sizes are variables: `einsum` and `collapse_sum` of tensors with symbolic shapes.

In: tensors of which some size is an expression. Out: TE tensors of the same meaning as the operators' of known sizes.
Invariant: one letter of `einsum` may have the size 1 in one tensor and another size in another, also where only the
call tells: then its one element is read everywhere. Static shapes go to the operators (`arrangements.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.base.arguments import Arguments
from armillary.errors import TypeMismatch
from armillary.ops.misc.linalg import parse
from armillary.tir import build as T
from armillary.tir.build import as_int
from armillary.tir.simplify import simplify

Tensor = te.Tensor


def is_symbolic(tensors: Sequence[Tensor]) -> bool:
    """Whether a size of one of them is no number."""
    tensors_of = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
    return any(as_int(extent) is None for tensor in tensors_of for extent in tensor.shape)


def einsum(subscripts: str, tensors: Sequence[Tensor]) -> Tensor:
    """The sums of products that the letters name."""
    for tensor in tensors:
        Arguments("topi.einsum").kind("operand", tensor, Tensor, "tensors")
    plan = parse(subscripts, [(1,) * tensor.ndim for tensor in tensors])
    sizes: dict[str, te.Expr] = {}
    for term, tensor in zip(plan.terms, tensors, strict=True):
        for letter, extent in zip(term, tensor.shape, strict=True):
            sizes[letter] = _joined(subscripts, letter, sizes.get(letter), extent)
    summed = sorted(set(sizes) - set(plan.result))
    axes = {letter: te.reduce_axis((0, sizes[letter]), name=letter) for letter in summed}

    def element(*at: te.Var) -> te.Expr:
        places: dict[str, te.Expr] = {**dict(zip(plan.result, at, strict=True)), **axes}
        product: te.Expr | None = None
        for term, tensor in zip(plan.terms, tensors, strict=True):
            read = tensor(*(_place(places[n], e, sizes[n]) for n, e in zip(term, tensor.shape, strict=True)))
            product = read if product is None else product * read
        assert product is not None, "parse wants an input"
        return te.sum(product, axis=list(axes.values())) if axes else product

    return te.compute(tuple(sizes[letter] for letter in plan.result), element, name="einsum")


def _joined(subscripts: str, letter: str, known: te.Expr | None, extent: te.Expr) -> te.Expr:
    """The size of a letter that has these two."""
    if known is None or as_int(known) == 1:
        return extent
    if as_int(extent) == 1 or as_int(simplify(known - extent)) == 0:
        return known
    if as_int(known) is not None and as_int(extent) is not None:
        raise TypeMismatch(f"einsum: letter {letter!r} of {subscripts!r} has sizes {known} and {extent}")
    return T.maximum(known, extent)


def _place(at: te.Expr, extent: te.Expr, size: te.Expr) -> te.Expr:
    if as_int(extent) == 1:
        return T.const(0)
    same = extent is size or as_int(simplify(extent - size)) == 0
    return at if same else T.if_then_else(T.equal(extent, 1), T.const(0), at)


def collapse_sum(data: Tensor, target_shape: Sequence[te.ExprLike]) -> Tensor:
    """Sums over leading axes that the target does not have, and over those that are 1 there."""
    target = [T.convert(extent) for extent in target_shape]
    extra = data.ndim - len(target)
    if extra < 0:
        raise TypeMismatch(f"topi.collapse_sum: {data.ndim} axes cannot be summed to {len(target)}")
    over = [k for k in range(data.ndim) if k < extra or _is_one(target[k - extra], data.shape[k])]
    axes = {k: te.reduce_axis((0, data.shape[k]), name=f"k{k}") for k in over}

    def element(*at: te.Var) -> te.Expr:
        read = data(*(axes[k] if k in axes else at[k - extra] for k in range(data.ndim)))
        return te.sum(read, axis=list(axes.values())) if axes else read

    return te.compute(tuple(target), element, name="collapse_sum")


def _is_one(target: te.Expr, extent: te.Expr) -> bool:
    return as_int(target) == 1 and as_int(extent) != 1
