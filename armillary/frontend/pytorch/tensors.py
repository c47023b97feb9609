"""Tensors of PyTorch as arrays, and its dtypes by name.

In: tensors (real or fake) and dtypes of torch, without importing it. Out: numpy arrays, which share the memory of a
tensor on the CPU that lies in order, and names of dtypes. Invariant: what no kernel here computes with is refused.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import ml_dtypes

from armillary.base.aliases import Array
from armillary.errors import UnsupportedError

if TYPE_CHECKING:
    from torch import Tensor


def dtype_name(dtype: object) -> str:
    """`float32` for torch.float32; refuses what no tensor here can be."""
    name = str(dtype).removeprefix("torch.")
    if name.startswith(("complex", "quint", "qint", "float8", "bits")):
        raise UnsupportedError(
            f"a tensor of the dtype {name}",
            hint="torch.export and torch.compile take complex tensors; quantised ones, PT2E alone",
        )
    return name


def array_of(tensor: Tensor) -> Array:
    """The elements of a tensor, shared where it lies in order on the CPU; parts of complex ones on a last axis of 2."""
    dense = tensor.detach()
    if dense.device.type == "meta":
        raise UnsupportedError("a weight without values (of the device meta)", hint="load the weights before export")
    if dense.is_sparse or str(dense.layout) != "torch.strided":
        raise UnsupportedError(f"a tensor of the layout {dense.layout}", hint="tensor.to_dense() before export")
    dense = dense.cpu().resolve_conj().resolve_neg()
    if dense.is_complex():
        dense = sys.modules["torch"].view_as_real(dense)
    name, dense = dtype_name(dense.dtype), dense.contiguous()
    if name == "bfloat16":
        bits: Array = dense.view(sys.modules["torch"].int16).numpy()  # numpy has no bfloat16 of its own
        return bits.view(ml_dtypes.bfloat16)
    result: Array = dense.numpy()
    return result
