"""Functions of topi about positions and parts of tensors, with the arguments that scripts pass.

In: tensors and attributes. Out: TE tensors, as the operators compute them. Invariant: only names and order are dealt
with here; `FUNCTIONS` is what `signatures.py` takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from armillary import relay, te
from armillary.errors import TypeMismatch
from armillary.tir import build as T
from armillary.topi.expression import of_function
from armillary.topi.operators import compute
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor
Result: TypeAlias = object  # a tensor, or several


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Result:
    """`data[i, j, …]` with tensors of positions."""
    return compute("adv_index", [(data, *indices)])


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Result:
    """Tensors one behind the other along an axis."""
    return compute("concatenate", [tuple(a_tuple)], (), {"axis": axis})


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Result:
    """Tensors side by side along a new axis."""
    return compute("stack", [tuple(tensors)], (), {"axis": axis})


def gather(data: Tensor, axis: int, indices: Tensor) -> Result:
    """Elements at positions along one axis."""
    return compute("gather", [data, indices], (), {"axis": axis})


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Result:
    """Slices at multi-dimensional positions; those that are floats are cut to integers."""
    if indices.dtype.is_float:
        indices = compute("cast", [indices], (), {"dtype": "int32"})
    return compute("gather_nd", [a, indices], (), {"batch_dims": batch_dims})


def expand_like(a: Tensor, shape_like: Tensor, axis: Sequence[int]) -> Tensor:
    """`a` repeated along new axes, which `axis` names, to the shape of another tensor."""
    rank = len(shape_like.shape)
    places = sorted(k % rank for k in axis)
    retained = [k for k in range(rank) if k not in places]
    if len(retained) != a.ndim:
        raise TypeMismatch(f"topi.expand_like: {a.ndim} axes and {len(places)} new ones, wanted {rank}")
    return te.compute(shape_like.shape, lambda *i: a(*(i[k] for k in retained)), name="expand_like", tag="broadcast")


_ALIGNED = {"LEFT": False, "RIGHT": True}


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT") -> Result:
    """Matrices with the diagonals from k[0] to k[1] replaced."""
    first, last = (k, k) if isinstance(k, int) else (k[0], k[-1])
    sides = align.split("_")
    if len(sides) != 2 or not set(sides) <= set(_ALIGNED):
        raise TypeMismatch(f"topi.matrix_set_diag: align {align!r}, wanted a pair such as RIGHT_LEFT")
    above, below = (_ALIGNED[side] for side in sides)
    named = {"k1": first, "k2": last, "super_diag_right_align": above, "sub_diag_right_align": below}
    return compute("matrix_set_diag", [data, diagonal], (), named)


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The sizes of a tensor, as a vector."""

    def size(at: te.Var) -> te.Expr:
        result: te.Expr = T.const(1, dtype)
        for number, extent in enumerate(array.shape):
            result = T.select(T.equal(at, number), T.cast(extent, dtype), result)
        return result

    return te.compute((array.ndim,), size, name="shape", tag="injective")


def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Sequence[int], sparse_values: Tensor, default_value: Tensor | float = 0
) -> Result:
    """Values at positions, a number elsewhere."""
    named = {"output_shape": tuple(get_const_tuple(output_shape))}
    return compute("sparse_to_dense", [sparse_indices, sparse_values, default_value], (), named)


def tensordot(a: Tensor, b: Tensor, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2) -> Result:
    """Products summed over the axes of both, as numpy's `tensordot`."""
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        first, second = axes
        left = [first] if isinstance(first, int) else list(first)
        right = [second] if isinstance(second, int) else list(second)
    letters = "abcdefghijklmnopqrstuvwxyz"
    of_a, of_b = list(letters[: a.ndim]), list(letters[a.ndim : a.ndim + b.ndim])
    for i, j in zip(left, right, strict=True):
        of_b[j % b.ndim] = of_a[i % a.ndim]
    retained = [n for k, n in enumerate(of_a) if k not in [i % a.ndim for i in left]]
    retained += [n for k, n in enumerate(of_b) if k not in [j % b.ndim for j in right]]
    return of_function(relay.einsum, [[a, b], f"{''.join(of_a)},{''.join(of_b)}->{''.join(retained)}"], {})


FUNCTIONS: dict[str, Callable[..., Result]] = {
    "adv_index": adv_index,
    "concatenate": concatenate,
    "expand_like": expand_like,
    "gather": gather,
    "gather_nd": gather_nd,
    "matrix_set_diag": matrix_set_diag,
    "shape": shape,
    "sparse_to_dense": sparse_to_dense,
    "stack": stack,
    "tensordot": tensordot,
}
