"""What TFLite's files hold: the model, its tensors and operators.

In: the bytes of a file. Out: a `Model`: tensors with shape, dtype, scales and stored bytes, operators by name with the
tensors they read and write. Invariant: every index is checked; sizes of stored tensors fit their shapes. Names and
numbers of fields, types and operators are those of TFLite's schema, version 3.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.tflite.flatbuffer import Flat, Table

_VERSION, _IDENTIFIER = 3, b"TFL3"
_TYPE_NAMES = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant "
    "uint32 uint16 int4 bfloat16"
)
_OPERATOR_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND
TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT
LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL
LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV
REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS
SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG
ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS
HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE
RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST
BITWISE_XOR RIGHT_SHIFT
"""
_DTYPES, _OPERATORS = _TYPE_NAMES.split(), _OPERATOR_NAMES.split()


@record(eq=False)
class Tensor:
    """One tensor. `scale` and `zero` have one entry, one for each index of `axis`, or none: real numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: Array
    zero: Array
    axis: int
    data: memoryview  # of a constant; else empty
    is_variable: bool
    file: str

    @property
    def is_quantised(self) -> bool:
        """Whether its integers stand for real numbers."""
        return self.scale.size > 0 and self.dtype in ("int8", "uint8", "int16", "int32", "int4")

    @property
    def is_constant(self) -> bool:
        """Whether the file holds its numbers."""
        return len(self.data) > 0 or (not self.is_variable and math.prod(self.shape) == 0)

    def array(self) -> Array:
        """The stored numbers."""
        count = math.prod(self.shape)
        if self.dtype == "int4":  # two in a byte, the low one first
            packed = self._bytes((count + 1) // 2)
            pairs = np.stack([packed << 4, packed], 1).view(np.int8) >> 4
            return pairs.reshape(-1)[:count].reshape(self.shape)
        if self.dtype not in _DTYPES or self.dtype in ("string", "resource", "variant"):
            raise UnsupportedError(f"constants of {self.dtype}", span=Span(self.name))
        kind = DType(self.dtype).numpy
        return self._bytes(count * kind.itemsize).view(kind).reshape(self.shape)

    def _bytes(self, size: int) -> Array:
        if len(self.data) != size:
            message = f"tensor {self.name!r} {list(self.shape)} of {self.dtype} has {len(self.data)} bytes, not {size}"
            raise ModelError(message, span=Span(self.file))
        return np.frombuffer(self.data, np.uint8)


@record(eq=False)
class Operator:
    """One operator: tensors by index, -1 for an input that is left out."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None
    custom: memoryview
    intermediates: tuple[int, ...]


@record(eq=False)
class Graph:
    """Tensors and operators, in the order in which they run."""

    tensors: list[Tensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: list[Operator]


@record(eq=False)
class Model:
    """The graphs of a file; the first one is run."""

    file: str
    graphs: list[Graph]


def read_model(data: bytes | memoryview, file: str, root: int | None = None) -> Model:
    """The model in a file; `file` is what errors call it, `root` the byte of its table unless the file says it."""
    flat = Flat(memoryview(data), file)
    if len(data) < 8 or (root is None and bytes(flat.data[4:8]) != _IDENTIFIER):
        raise ModelError("it is no TFLite file: TFL3 is not in its bytes 4 to 8", span=Span(file))
    table = flat.root() if root is None else Table(flat, root)
    if table.whole(0, "I") != _VERSION:
        raise ModelError(f"it is of version {table.whole(0, 'I')} of the format, wanted {_VERSION}", span=Span(file))
    codes = [_operator_name(code) for code in table.tables(1)]
    buffers = table.tables(4)
    graphs = [_graph(flat, graph, codes, buffers) for graph in table.tables(2)]
    if not graphs:
        raise ModelError("the file holds no graph", span=Span(file))
    return Model(file, graphs)


def _operator_name(code: Table) -> str:
    """The name of an operator; `CUSTOM name` for one of somebody's own."""
    number = max(code.whole(0, "b"), code.whole(3, "i"))
    if not 0 <= number < len(_OPERATORS):
        return f"operator {number}"
    return f"CUSTOM {code.text(1)}" if _OPERATORS[number] == "CUSTOM" else _OPERATORS[number]


def _graph(flat: Flat, table: Table, codes: list[str], buffers: object) -> Graph:
    tensors = [_tensor(flat, tensor, buffers) for tensor in table.tables(0)]
    operators = [_operator(flat, operator, codes, len(tensors)) for operator in table.tables(3)]
    inputs, outputs = (_indices(flat, table.wholes(k), len(tensors), least=0) for k in (1, 2))
    return Graph(tensors, inputs, outputs, operators)


def _tensor(flat: Flat, table: Table, buffers: object) -> Tensor:
    assert isinstance(buffers, list), "tables are listed"
    number, shape, kind = table.whole(2, "I"), table.wholes(0), table.whole(1, "b")
    name = table.text(3)
    if not 0 <= number < max(len(buffers), 1) or not 0 <= kind < len(_DTYPES) or min(shape, default=0) < 0:
        message = f"tensor {name!r} has the buffer {number}, the type {kind} and the shape {list(shape)}"
        raise ModelError(message, span=Span(flat.name))
    scale, zero, axis = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
    quantised = table.table(4)
    if quantised is not None:
        scale, zero, axis = quantised.numbers(2, "float32"), quantised.numbers(3, "int64"), quantised.whole(6)
        zero = np.zeros(scale.size, np.int64) if zero.size != scale.size else zero
        if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
            raise ModelError(f"tensor {name!r} {list(shape)} has {scale.size} scales", span=Span(flat.name))
    data = _bytes(flat, buffers[number]) if number else flat.data[:0]
    is_variable = bool(table.number(5, "?"))
    return Tensor(name, shape, _DTYPES[kind], scale, zero, axis, data, is_variable, flat.name)


def _bytes(flat: Flat, buffer: Table) -> memoryview:
    """The bytes of a buffer, which lie behind the tables in large files."""
    offset, size = buffer.whole(1, "Q"), buffer.whole(2, "Q")
    return flat.bytes_at(offset, size) if offset > 1 else buffer.raw(0)


def _operator(flat: Flat, table: Table, codes: list[str], tensors: int) -> Operator:
    code = table.whole(0, "I")
    if code >= len(codes):
        raise ModelError(f"an operator has the code {code} of {len(codes)}", span=Span(flat.name))
    reads, writes = _indices(flat, table.wholes(1), tensors), _indices(flat, table.wholes(2), tensors, least=0)
    between = _indices(flat, table.wholes(8), tensors)
    return Operator(codes[code], reads, writes, table.table(4), table.raw(5), between)


def _indices(flat: Flat, numbers: tuple[int, ...], count: int, least: int = -1) -> tuple[int, ...]:
    for number in numbers:
        if not least <= number < count:
            raise ModelError(f"tensor {number} is named, and there are {count}", span=Span(flat.name))
    return numbers
