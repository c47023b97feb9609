"""The onnx package, imported when a model needs it: it takes 12 MB and as long as numpy.

In: nothing. Out: `onnx` and protobuf's `DecodeError` (as an attribute of `protobuf`), and the numbers of ONNX's element
and attribute types. Invariant: importing our frontend does not import onnx; a plain file (onnx/plain.py) is read
without it. Source of the numbers: onnx.proto; a test compares.
"""

from __future__ import annotations

import enum

from armillary.base.lazy import deferred

with deferred():
    import onnx as onnx
    from google.protobuf import message as protobuf  # type: ignore[import-untyped, unused-ignore]

    __all__ = ["AttributeType", "ElementType", "onnx", "plain_domain", "protobuf"]

ElementType = enum.IntEnum(
    "ElementType",
    "FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16 "
    "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ UINT4 INT4 FLOAT4E2M1 FLOAT8E8M0 UINT2 INT2 FLOAT6E2M3 "
    "FLOAT6E3M2",
)
AttributeType = enum.IntEnum(
    "AttributeType",
    "FLOAT INT STRING TENSOR GRAPH FLOATS INTS STRINGS TENSORS GRAPHS SPARSE_TENSOR SPARSE_TENSORS TYPE_PROTO "
    "TYPE_PROTOS",
)


def plain_domain(domain: str) -> str:
    """ONNX's own domain has two spellings; "" is the one we keep."""
    return "" if domain == "ai.onnx" else domain
