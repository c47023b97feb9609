"""Relay for type checkers: the operators as functions. Written by tools/write_docs.py; do not edit."""

import typing
from collections.abc import Sequence

from armillary.base.aliases import Array as _Array
from armillary.relay.expr import Call as _Call
from armillary.relay.expr import Expr as _Expr

_Operand: typing.TypeAlias = _Expr | _Array | float
_Operands: typing.TypeAlias = _Operand | Sequence[_Operand]
_Numbers: typing.TypeAlias = int | Sequence[int]


from armillary.relay.types import AnyDim as Any
from armillary.relay.expr import Call as Call
from armillary.relay.adt import Clause as Clause
from armillary.relay.expr import Constant as Constant
from armillary.relay.adt import Constructor as Constructor
from armillary.relay.expr import Expr as Expr
from armillary.relay.expr_functor import ExprFunctor as ExprFunctor
from armillary.relay.expr_functor import ExprMutator as ExprMutator
from armillary.relay.expr_functor import ExprVisitor as ExprVisitor
from armillary.relay.types import FuncType as FuncType
from armillary.relay.expr import Function as Function
from armillary.relay.adt.types import GlobalTypeVar as GlobalTypeVar
from armillary.ir import GlobalVar as GlobalVar
from armillary.ir import IRModule as IRModule
from armillary.relay.expr import If as If
from armillary.relay.types import IncompleteType as IncompleteType
from armillary.relay.expr import Let as Let
from armillary.relay.expr import Loop as Loop
from armillary.relay.adt import Match as Match
from armillary.ir import IRModule as Module
from armillary.relay.op import Op as Op
from armillary.relay.adt import Pattern as Pattern
from armillary.relay.adt import PatternConstructor as PatternConstructor
from armillary.relay.adt import PatternTuple as PatternTuple
from armillary.relay.adt import PatternVar as PatternVar
from armillary.relay.adt import PatternWildcard as PatternWildcard
from armillary.relay.adt import RefCreate as RefCreate
from armillary.relay.adt import RefRead as RefRead
from armillary.relay.adt.types import RefType as RefType
from armillary.relay.adt import RefWrite as RefWrite
from armillary.relay.adt.types import RefType as RelayRefType
from armillary.relay.scope_builder import ScopeBuilder as ScopeBuilder
from armillary.relay.types import TensorType as TensorType
from armillary.relay.expr import Tuple as Tuple
from armillary.relay.expr import TupleGetItem as TupleGetItem
from armillary.relay.types import TupleType as TupleType
from armillary.relay.expr import TupleWrapper as TupleWrapper
from armillary.relay.types import Type as Type
from armillary.relay.adt.types import TypeCall as TypeCall
from armillary.relay.adt.types import TypeData as TypeData
from armillary.relay.adt.types import TypeKind as TypeKind
from armillary.errors import TypeMismatch as TypeMismatch
from armillary.relay.adt.types import TypeVar as TypeVar
from armillary.relay.expr import Var as Var
from armillary.relay import adt as adt
from armillary.relay import analysis as analysis
from armillary.relay.printer import astext as astext
from armillary.relay import backend as backend
from armillary.relay.binding import bind as bind
from armillary.relay.binding import bind_params_by_name as bind_params_by_name
from armillary.driver.build import build as build
from armillary.transform import PassContext as build_config
from armillary.relay import build_module as build_module
from armillary.relay.expr import const as const
from armillary.driver.executor import create_executor as create_executor
from armillary.relay import data_dep_optimization as data_dep_optimization
from armillary.relay import dataflow_pattern as dataflow_pattern
from armillary.relay import expr as expr
from armillary.relay import expr_functor as expr_functor
from armillary.relay.analysis import free_vars as free_vars
from armillary.relay.parser import fromtext as fromtext
from armillary import frontend as frontend
from armillary.relay import infer as infer
from armillary.relay.infer import infer_type as infer_type
from armillary.runtime.container import load_param_dict as load_param_dict
from armillary.relay import loops as loops
from armillary.relay import names as names
from armillary.relay import op as op
from armillary.driver.build import optimize as optimize
from armillary.relay import param_dict as param_dict
from armillary.relay.parser import parse as parse
from armillary.relay.parser import parse_expr as parse_expr
from armillary.relay import prelude as prelude
from armillary.relay import printer as printer
from armillary.relay import quantize as quantize
from armillary.runtime.container import save_param_dict as save_param_dict
from armillary.relay.types import scalar_type as scalar_type
from armillary.relay import scope_builder as scope_builder
from armillary.relay import testing as testing
from armillary.relay import transform as transform
from armillary.relay import ty as ty
from armillary.relay import types as types
from armillary.relay.expr import var as var
from armillary.relay.visualization.picture import visualize as visualize
from armillary.relay.backend import vm as vm
from armillary.relay import walk as walk
from armillary.ops.misc.fourier import dft as dft
from armillary.ops.misc.user import gather as gather
from armillary.ops.misc.user import matrix_set_diag as matrix_set_diag
from armillary.ops.misc.user import max_of as max
from armillary.ops.misc.user import mean_std as mean_std
from armillary.ops.misc.user import mean_variance as mean_variance
from armillary.ops.misc.user import meshgrid as meshgrid
from armillary.ops.misc.user import min_of as min
from armillary.ops.misc.compositions import reverse_reshape as reverse_reshape
from armillary.ops.misc.user import sparse_fill_empty_rows as sparse_fill_empty_rows
from armillary.ops.misc.user import sparse_to_dense as sparse_to_dense
from armillary.ops.reduce.reduce import std as std
from armillary.ops.misc.fourier import stft as stft
from armillary.ops.misc.user import variance_of as variance

__all__ = [
    "Any",
    "Call",
    "Clause",
    "Constant",
    "Constructor",
    "Expr",
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "FuncType",
    "Function",
    "GlobalTypeVar",
    "GlobalVar",
    "IRModule",
    "If",
    "IncompleteType",
    "Let",
    "Loop",
    "Match",
    "Module",
    "Op",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefWrite",
    "RelayRefType",
    "ScopeBuilder",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeKind",
    "TypeMismatch",
    "TypeVar",
    "Var",
    "adt",
    "analysis",
    "astext",
    "backend",
    "bind",
    "bind_params_by_name",
    "build",
    "build_config",
    "build_module",
    "const",
    "create_executor",
    "data_dep_optimization",
    "dataflow_pattern",
    "dft",
    "expr",
    "expr_functor",
    "free_vars",
    "fromtext",
    "frontend",
    "gather",
    "infer",
    "infer_type",
    "load_param_dict",
    "loops",
    "matrix_set_diag",
    "max",
    "mean_std",
    "mean_variance",
    "meshgrid",
    "min",
    "names",
    "op",
    "optimize",
    "param_dict",
    "parse",
    "parse_expr",
    "prelude",
    "printer",
    "quantize",
    "reverse_reshape",
    "save_param_dict",
    "scalar_type",
    "scope_builder",
    "sparse_fill_empty_rows",
    "sparse_to_dense",
    "std",
    "stft",
    "testing",
    "transform",
    "ty",
    "types",
    "var",
    "variance",
    "visualize",
    "vm",
    "walk",
]

def abs(data: _Operand) -> _Call:
    """abs of each element."""

def acos(data: _Operand) -> _Call:
    """acos of each element."""

def acosh(data: _Operand) -> _Call:
    """acosh of each element."""

def add(lhs: _Operand, rhs: _Operand) -> _Call:
    """add of two tensors, broadcasting."""

def adv_index(inputs: _Operands) -> _Call:
    """Numpy's indexing with tensors: data[i, j…]."""

def all(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False) -> _Call:
    """all over axes."""

def any(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False) -> _Call:
    """any over axes."""

def arange(start: Sequence[typing.Any], stop: Sequence[typing.Any] | None = None, step: float = 1, dtype: str = 'float32') -> _Call:
    """Evenly spaced numbers."""

def argmax(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False) -> _Call:
    """Position of the largest element along axes."""

def argmin(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False) -> _Call:
    """Position of the smallest element along axes."""

def argsort(data: _Operand, axis: int = -1, is_ascend: bool = True, dtype: str = 'int32') -> _Call:
    """The positions that sort an axis; stable."""

def argwhere(condition: _Operand) -> _Call:
    """Coordinates of what is not zero, a row each."""

def asin(data: _Operand) -> _Call:
    """asin of each element."""

def asinh(data: _Operand) -> _Call:
    """asinh of each element."""

def atan(data: _Operand) -> _Call:
    """atan of each element."""

def atan2(lhs: _Operand, rhs: _Operand) -> _Call:
    """atan2 of two tensors, broadcasting."""

def atanh(data: _Operand) -> _Call:
    """atanh of each element."""

def bind_size(count: _Operand, size: typing.Any = 0) -> _Call:
    """The count, which becomes the value of a named size."""

def bitwise_and(lhs: _Operand, rhs: _Operand) -> _Call:
    """bitwise_and of two tensors, broadcasting."""

def bitwise_not(data: _Operand) -> _Call:
    """bitwise_not of each element."""

def bitwise_or(lhs: _Operand, rhs: _Operand) -> _Call:
    """bitwise_or of two tensors, broadcasting."""

def bitwise_xor(lhs: _Operand, rhs: _Operand) -> _Call:
    """bitwise_xor of two tensors, broadcasting."""

def bounded_nonzero(data: _Operand) -> _Call:
    """Coordinates of what is not zero, zeros behind them, and the count."""

def broadcast_to(data: _Operand, shape: Sequence[typing.Any]) -> _Call:
    """Repeat along axes of size 1 until the shape is reached."""

def broadcast_to_like(data: _Operand, broadcast_type: _Operand) -> _Call:
    """Broadcast to another's shape."""

def cast(data: _Operand, dtype: str) -> _Call:
    """Convert each element to another dtype, as C does."""

def cast_like(data: _Operand, dtype_like: _Operand) -> _Call:
    """Cast to another tensor's dtype."""

def ceil(data: _Operand) -> _Call:
    """ceil of each element."""

def check_values(data: _Operand, bounds: Sequence[typing.Any], what: str, moved: int = 0) -> _Call:
    """Integers, once they are known to lie within bounds."""

def clip(data: _Operand, a_min: float, a_max: float) -> _Call:
    """min(max(x, a_min), a_max); NaN stays."""

def collapse_sum_like(data: _Operand, collapse_type: _Operand) -> _Call:
    """collapse_sum_to another's shape."""

def collapse_sum_to(data: _Operand, shape: _Numbers) -> _Call:
    """Sums over the axes along which a shape would broadcast."""

def concatenate(data: _Operands, axis: int = 0) -> _Call:
    """Tensors one after another, along an axis."""

def copy(data: _Operand) -> _Call:
    """The value itself, in memory of its own."""

def cos(data: _Operand) -> _Call:
    """cos of each element."""

def cosh(data: _Operand) -> _Call:
    """cosh of each element."""

def cumprod(data: _Operand, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None, reverse: bool = False) -> _Call:
    """Running product along an axis."""

def cumsum(data: _Operand, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None, reverse: bool = False) -> _Call:
    """Running sum along an axis."""

def device_copy(data: _Operand, src_dev_type: int, dst_dev_type: int, src_place: Sequence[typing.Any] = (), dst_place: Sequence[typing.Any] = ()) -> _Call:
    """The value, moved from one device to another."""

def divide(lhs: _Operand, rhs: _Operand) -> _Call:
    """divide of two tensors, broadcasting."""

def dynamic(inputs: _Operands, op: str, names: Sequence[typing.Any], settings: Sequence[typing.Any] = ()) -> _Call:
    """An operator some of whose attributes are values."""

def einsum(data: _Operands, equation: str) -> _Call:
    """Sums of products of elements, named by letters."""

def equal(lhs: _Operand, rhs: _Operand) -> _Call:
    """equal of two tensors, broadcasting."""

def equal_sizes(a: typing.Any = 1, b: typing.Any = 1, of_a: str = '', of_b: str = '') -> _Call:
    """0, once two extents have been found to be equal."""

def erf(data: _Operand) -> _Call:
    """erf of each element."""

def exp(data: _Operand) -> _Call:
    """exp of each element."""

def expand_dims(data: _Operand, axis: int, num_newaxis: int = 1) -> _Call:
    """Insert axes of size 1."""

def eye(rows: int, columns: int, k: int = 0, dtype: str = 'float32') -> _Call:
    """Ones on a diagonal, zeros elsewhere."""

def fast_erf(data: _Operand) -> _Call:
    """erf to 3e-6."""

def fast_exp(data: _Operand) -> _Call:
    """exp to 7e-6, between -87 and 88."""

def fast_tanh(data: _Operand) -> _Call:
    """tanh to 3e-6."""

def fixed_point_multiply(data: _Operand, multiplier: int = 0, shift: int = 0) -> _Call:
    """Integers times a fraction of 31 bits."""

def fixed_point_multiply_per_axis(data: _Operand, multiplier: _Operand, lshift: _Operand, rshift: _Operand, is_lshift_required: bool = False, is_rshift_required: bool = False, axes: _Numbers = ()) -> _Call:
    """Integers times fractions of 31 bits, one for each index of some axes."""

def floor(data: _Operand) -> _Call:
    """floor of each element."""

def floor_divide(lhs: _Operand, rhs: _Operand) -> _Call:
    """floor_divide of two tensors, broadcasting."""

def floor_mod(lhs: _Operand, rhs: _Operand) -> _Call:
    """floor_mod of two tensors, broadcasting."""

def full(fill_value: _Operand, shape: Sequence[typing.Any], dtype: str = '') -> _Call:
    """A tensor filled with one value."""

def full_like(data: _Operand, fill_value: _Operand) -> _Call:
    """Another's shape, one value."""

def gather_nd(data: _Operand, indices: _Operand, batch_dims: int = 0, index_rank: int | None = None) -> _Call:
    """Slices at multi-dimensional positions."""

def greater(lhs: _Operand, rhs: _Operand) -> _Call:
    """greater of two tensors, broadcasting."""

def greater_equal(lhs: _Operand, rhs: _Operand) -> _Call:
    """greater_equal of two tensors, broadcasting."""

def invert_permutation(data: _Operand) -> _Call:
    """Where each number of a permutation stands."""

def isfinite(data: _Operand) -> _Call:
    """isfinite of each element."""

def isinf(data: _Operand) -> _Call:
    """isinf of each element."""

def isnan(data: _Operand) -> _Call:
    """isnan of each element."""

def layout_transform(data: _Operand, src_layout: str = 'NCHW', dst_layout: str = 'NCHW') -> _Call:
    """The same tensor in another layout."""

def left_shift(lhs: _Operand, rhs: _Operand) -> _Call:
    """left_shift of two tensors, broadcasting."""

def less(lhs: _Operand, rhs: _Operand) -> _Call:
    """less of two tensors, broadcasting."""

def less_equal(lhs: _Operand, rhs: _Operand) -> _Call:
    """less_equal of two tensors, broadcasting."""

def log(data: _Operand) -> _Call:
    """log of each element."""

def log10(data: _Operand) -> _Call:
    """log10 of each element."""

def log2(data: _Operand) -> _Call:
    """log2 of each element."""

def logical_and(lhs: _Operand, rhs: _Operand) -> _Call:
    """logical_and of two tensors, broadcasting."""

def logical_not(data: _Operand) -> _Call:
    """logical_not of each element."""

def logical_or(lhs: _Operand, rhs: _Operand) -> _Call:
    """logical_or of two tensors, broadcasting."""

def logical_xor(lhs: _Operand, rhs: _Operand) -> _Call:
    """logical_xor of two tensors, broadcasting."""

def logsumexp(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False) -> _Call:
    """log(sum(exp(x))), without overflow."""

def maximum(lhs: _Operand, rhs: _Operand) -> _Call:
    """maximum of two tensors, broadcasting."""

def mean(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False) -> _Call:
    """mean over axes."""

def minimum(lhs: _Operand, rhs: _Operand) -> _Call:
    """minimum of two tensors, broadcasting."""

def mod(lhs: _Operand, rhs: _Operand) -> _Call:
    """mod of two tensors, broadcasting."""

def multiply(lhs: _Operand, rhs: _Operand) -> _Call:
    """multiply of two tensors, broadcasting."""

def ndarray_size(data: _Operand, dtype: str = 'int32') -> _Call:
    """The number of elements, as a scalar."""

def nearbyint(data: _Operand) -> _Call:
    """To nearest, halves to even."""

def negative(data: _Operand) -> _Call:
    """negative of each element."""

def not_equal(lhs: _Operand, rhs: _Operand) -> _Call:
    """not_equal of two tensors, broadcasting."""

def one_hot(indices: _Operand, on_value: _Operand, off_value: _Operand, depth: int, axis: int = -1, dtype: str = 'float32') -> _Call:
    """on_value where the new axis equals the index, else off_value."""

def ones(shape: Sequence[typing.Any], dtype: str = '') -> _Call:
    """A tensor of ones."""

def ones_like(data: _Operand) -> _Call:
    """A tensor of ones of another's shape and dtype."""

def power(lhs: _Operand, rhs: _Operand) -> _Call:
    """power of two tensors, broadcasting."""

def prod(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False) -> _Call:
    """prod over axes."""

def reinterpret(data: _Operand, dtype: str) -> _Call:
    """The same bits read as another dtype of equal width."""

def repeat(data: _Operand, repeats: int, axis: int | None = None) -> _Call:
    """Each element repeated along an axis."""

def reshape(data: _Operand, newshape: Sequence[typing.Any], allowzero: bool = False) -> _Call:
    """The same elements in another shape."""

def reshape_like(data: _Operand, shape_like: _Operand, lhs_begin: int = 0, lhs_end: int | None = None, rhs_begin: int = 0, rhs_end: int | None = None) -> _Call:
    """Reshape to another's shape."""

def reverse(data: _Operand, axis: int = 0) -> _Call:
    """The elements of an axis in reverse order."""

def reverse_sequence(data: _Operand, seq_lengths: _Operand, seq_axis: int = 1, batch_axis: int = 0) -> _Call:
    """Reverse a part of each sequence."""

def right_shift(lhs: _Operand, rhs: _Operand) -> _Call:
    """right_shift of two tensors, broadcasting."""

def round(data: _Operand) -> _Call:
    """To nearest, halves away from zero."""

def rsqrt(data: _Operand) -> _Call:
    """rsqrt of each element."""

def run_after(first: _Operand, data: _Operand) -> _Call:
    """The data, computed once the first input has been."""

def scatter_elements(data: _Operand, indices: _Operand, updates: _Operand, axis: int = 0, reduction: str = 'update') -> _Call:
    """Write elements at positions along an axis."""

def scatter_nd(data: _Operand, indices: _Operand, updates: _Operand, mode: str = 'update') -> _Call:
    """Write slices at multi-dimensional positions."""

def searchsorted(sorted_sequence: _Operand, values: _Operand, right: bool = False, dtype: str = 'int32') -> _Call:
    """Where values would be put into sorted rows."""

def segment_sum(data: _Operand, segment_ids: _Operand, num_segments: int | None = None) -> _Call:
    """Sums of the rows of each segment."""

def sequence_mask(data: _Operand, valid_length: _Operand, mask_value: float = 0.0, axis: int = 0) -> _Call:
    """A number behind each sequence's end."""

def shape_of(data: _Operand, dtype: str = 'int32') -> _Call:
    """The shape, as a tensor."""

def sigmoid(data: _Operand) -> _Call:
    """sigmoid of each element."""

def sign(data: _Operand) -> _Call:
    """sign of each element."""

def sin(data: _Operand) -> _Call:
    """sin of each element."""

def sinh(data: _Operand) -> _Call:
    """sinh of each element."""

def sizes(values: Sequence[typing.Any], shape: _Numbers = (), dtype: str = 'int64') -> _Call:
    """Values of named sizes, and of expressions over them."""

def slice_like(data: _Operand, shape_like: _Operand, axes: _Numbers | None = None) -> _Call:
    """The leading part, as large as another."""

def sliding_window(data: _Operand, axis: int, window_shape: _Numbers, strides: _Numbers) -> _Call:
    """All windows of a shape, as further axes."""

def sort(data: _Operand, axis: int = -1, is_ascend: bool = True) -> _Call:
    """The values of an axis in order."""

def sparse_reshape(sparse_indices: _Operand, prev_shape: _Operand, new_shape: _Operand) -> _Call:
    """Positions of elements in another shape."""

def split(data: _Operand, indices_or_sections: _Numbers, axis: int = 0) -> _Call:
    """Cut along an axis into a tuple of tensors."""

def sqrt(data: _Operand) -> _Call:
    """sqrt of each element."""

def squeeze(data: _Operand, axis: _Numbers | None = None) -> _Call:
    """Drop axes of size 1."""

def stack(data: _Operands, axis: int = 0) -> _Call:
    """Tensors of one shape along a new axis."""

def strided_set(data: _Operand, v: _Operand, begin: _Numbers, end: _Numbers, strides: _Numbers = (1,)) -> _Call:
    """data[begin:end:strides] = v."""

def strided_slice(data: _Operand, begin: Sequence[typing.Any], end: Sequence[typing.Any], strides: _Numbers | None = None, axes: _Numbers | None = None, slice_mode: str = 'end') -> _Call:
    """A regular part of a tensor, as numpy's x[b:e:s]."""

def subtract(lhs: _Operand, rhs: _Operand) -> _Call:
    """subtract of two tensors, broadcasting."""

def sum(data: _Operand, axis: _Numbers | None = None, keepdims: bool = False, exclude: bool = False) -> _Call:
    """sum over axes."""

def take(data: _Operand, indices: _Operand, axis: int | None = None, batch_dims: int = 0, mode: str = 'clip') -> _Call:
    """Slices of data at the given positions."""

def tan(data: _Operand) -> _Call:
    """tan of each element."""

def tanh(data: _Operand) -> _Call:
    """tanh of each element."""

def tile(data: _Operand, reps: Sequence[typing.Any]) -> _Call:
    """The whole tensor repeated along each axis."""

def topk(data: _Operand, k: int = 1, axis: int = -1, ret_type: str = 'both', is_ascend: bool = False, dtype: str = 'int32') -> _Call:
    """The k largest (is_ascend: smallest) values and their positions, in order."""

def transpose(data: _Operand, axes: _Numbers | None = None) -> _Call:
    """Permute the axes."""

def trilu(data: _Operand, k: int = 0, upper: bool = True) -> _Call:
    """The upper or lower triangle of the last two axes; zeros elsewhere."""

def trunc(data: _Operand) -> _Call:
    """trunc of each element."""

def trunc_divide(lhs: _Operand, rhs: _Operand) -> _Call:
    """trunc_divide of two tensors, broadcasting."""

def trunc_mod(lhs: _Operand, rhs: _Operand) -> _Call:
    """trunc_mod of two tensors, broadcasting."""

def unique(data: _Operand, is_sorted: bool = True, return_counts: bool = False) -> _Call:
    """The different elements of a vector, zeros behind them."""

def unravel_index(indices: _Operand, shape: _Operand) -> _Call:
    """Coordinates of positions in a flat array."""

def where(condition: _Operand, x: _Operand, y: _Operand) -> _Call:
    """x where condition is not 0, else y."""

def zeros(shape: Sequence[typing.Any], dtype: str = '') -> _Call:
    """A tensor of zeros."""

def zeros_like(data: _Operand) -> _Call:
    """A tensor of zeros of another's shape and dtype."""


class _Annotation:
    """Operators `annotation.*`."""

    @staticmethod
    def checkpoint(data: _Expr) -> _Expr:
        """The expression itself: marks for what is recomputed, or fused, decide nothing about its value."""

    @staticmethod
    def compiler_begin(data: _Operand, compiler: str) -> _Call:
        """An input of a region for an external library."""

    @staticmethod
    def compiler_end(data: _Operand, compiler: str) -> _Call:
        """A result of a region for an external library."""

    @staticmethod
    def on_device(data: _Operand, device_type: int, constrain_result: bool = False, constrain_body: bool = True, place: Sequence[typing.Any] = ()) -> _Call:
        """The value, computed on a device."""

    @staticmethod
    def simulated_quantize(data: _Operand, dom_scale: _Operand, clip_min: _Operand, clip_max: _Operand, kind: int = 1, sign: bool = True, rounding: str = 'round') -> _Call:
        """What quantising to whole steps would leave of a value."""

    @staticmethod
    def stop_fusion(data: _Operand) -> _Call:
        """The value, which is not computed in the kernel of its readers."""


annotation: _Annotation

class _Image:
    """Operators `image.*`."""

    @staticmethod
    def affine_grid(data: _Operand, target_shape: _Numbers = ()) -> _Call:
        """Places that an affine map reads."""

    @staticmethod
    def crop_and_resize(data: _Operand, boxes: _Operand, box_indices: _Operand, crop_size: _Numbers = (), layout: str = 'NCHW', method: str = 'bilinear', extrapolation_value: float = 0.0, out_dtype: str = '') -> _Call:
        """Boxes of images, brought to one size."""

    @staticmethod
    def dilation2d(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilations: _Numbers = (1, 1), data_layout: str = 'NCHW', kernel_layout: str = 'IHW', out_dtype: str = '') -> _Call:
        """Largest sums of windows and a filter."""

    @staticmethod
    def grid_sample(data: _Operand, grid: _Operand, method: str = 'bilinear', layout: str = 'NCHW', padding_mode: str = 'zeros', align_corners: bool = True, grid_axis: int = 1) -> _Call:
        """Interpolation at given places."""

    @staticmethod
    def resize1d(data: _Operand, size: Sequence[typing.Any] = (), roi: Sequence[float] = (), layout: str = '', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = '', cubic_alpha: float = -0.5, cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str = '', antialias: bool = False, scales: Sequence[float] = ()) -> _Call:
        """Interpolation to another spatial size."""

    @staticmethod
    def resize2d(data: _Operand, size: Sequence[typing.Any] = (), roi: Sequence[float] = (), layout: str = '', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = '', cubic_alpha: float = -0.5, cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str = '', antialias: bool = False, scales: Sequence[float] = ()) -> _Call:
        """Interpolation to another spatial size."""

    @staticmethod
    def resize3d(data: _Operand, size: Sequence[typing.Any] = (), roi: Sequence[float] = (), layout: str = '', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = '', cubic_alpha: float = -0.5, cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str = '', antialias: bool = False, scales: Sequence[float] = ()) -> _Call:
        """Interpolation to another spatial size."""


image: _Image

class _Ml:
    """Operators `ml.*`."""

    @staticmethod
    def pair_probabilities(data: _Operand, classes: int = 2) -> _Call:
        """Probabilities of classes from those of each pair of them."""

    @staticmethod
    def tree_ensemble(data: _Operand, features: _Operand, thresholds: _Operand, children: _Operand, roots: _Operand, depths: _Operand, leaf_targets: _Operand, leaf_weights: _Operand, targets: int = 1, first_leaf: int = 0, aggregate: str = 'SUM') -> _Call:
        """What decision trees say of each row, by target."""


ml: _Ml

class _Nn:
    """Operators `nn.*`."""

    @staticmethod
    def adaptive_avg_pool1d(data: _Operand, output_size: Sequence[typing.Any] | None = None, layout: str = 'NCW', out_layout: str = '') -> _Call:
        """The mean of each bin."""

    @staticmethod
    def adaptive_avg_pool2d(data: _Operand, output_size: Sequence[typing.Any] | None = None, layout: str = 'NCHW', out_layout: str = '') -> _Call:
        """The mean of each bin."""

    @staticmethod
    def adaptive_avg_pool3d(data: _Operand, output_size: Sequence[typing.Any] | None = None, layout: str = 'NCDHW', out_layout: str = '') -> _Call:
        """The mean of each bin."""

    @staticmethod
    def adaptive_max_pool1d(data: _Operand, output_size: Sequence[typing.Any] | None = None, layout: str = 'NCW', out_layout: str = '') -> _Call:
        """The maximum of each bin."""

    @staticmethod
    def adaptive_max_pool2d(data: _Operand, output_size: Sequence[typing.Any] | None = None, layout: str = 'NCHW', out_layout: str = '') -> _Call:
        """The maximum of each bin."""

    @staticmethod
    def adaptive_max_pool3d(data: _Operand, output_size: Sequence[typing.Any] | None = None, layout: str = 'NCDHW', out_layout: str = '') -> _Call:
        """The maximum of each bin."""

    @staticmethod
    def add_step(data: _Operand, inputs: _Operand, step: _Operand, offset: int = 0) -> _Call:
        """Adds columns of one step's inputs."""

    @staticmethod
    def attention(query: _Operand, key: _Operand, value: _Operand, scale: float = 1.0, heads: int = 0, query_layout: str = 'BTHD', key_layout: str = 'BTHD', value_layout: str = 'BTHD', out_layout: str = 'BTHD', offsets: _Numbers = (0, 0, 0), shared: int = 1, choice: str = '', blank: bool = False) -> _Call:
        """softmax(scale * query key^T + mask) value."""

    @staticmethod
    def avg_pool1d(data: _Operand, pool_size: Sequence[typing.Any] = (1,), strides: Sequence[typing.Any] = (1,), dilation: Sequence[typing.Any] = (1,), padding: Sequence[typing.Any] = (0,), layout: str = 'NCW', out_layout: str = '', ceil_mode: bool = False, count_include_pad: bool = False) -> _Call:
        """The mean of each window."""

    @staticmethod
    def avg_pool2d(data: _Operand, pool_size: Sequence[typing.Any] = (1, 1), strides: Sequence[typing.Any] = (1, 1), dilation: Sequence[typing.Any] = (1, 1), padding: Sequence[typing.Any] = (0, 0), layout: str = 'NCHW', out_layout: str = '', ceil_mode: bool = False, count_include_pad: bool = False) -> _Call:
        """The mean of each window."""

    @staticmethod
    def avg_pool2d_grad(out_grad: _Expr, data: _Expr, pool_size: int | Sequence[int] = (1, 1), strides: int | Sequence[int] = (1, 1), padding: int | Sequence[int] = (0, 0), layout: str = 'NCHW', out_layout: str = '', ceil_mode: bool = False, count_include_pad: bool = False) -> _Expr:
        """The gradient of an average pooling's data."""

    @staticmethod
    def avg_pool3d(data: _Operand, pool_size: Sequence[typing.Any] = (1, 1, 1), strides: Sequence[typing.Any] = (1, 1, 1), dilation: Sequence[typing.Any] = (1, 1, 1), padding: Sequence[typing.Any] = (0, 0, 0), layout: str = 'NCDHW', out_layout: str = '', ceil_mode: bool = False, count_include_pad: bool = False) -> _Call:
        """The mean of each window."""

    @staticmethod
    def batch_flatten(data: _Operand) -> _Call:
        """All axes but the first as one."""

    @staticmethod
    def batch_matmul(tensor_a: _Operand, tensor_b: _Operand, out_dtype: str = '', transpose_a: bool = False, transpose_b: bool = True, choice: str = '') -> _Call:
        """A product of two matrices for each batch; the second is transposed unless told otherwise."""

    @staticmethod
    def batch_norm(data: _Operand, gamma: _Operand, beta: _Operand, moving_mean: _Operand, moving_var: _Operand, axis: int = 1, epsilon: float = 1e-05, center: bool = True, scale: bool = True) -> _Call:
        """Each channel shifted and scaled by stored means and variances: the result, the means, the variances."""

    @staticmethod
    def batch_to_space_nd(data: _Operand, block_shape: _Numbers = (), crops: Sequence[Sequence[int]] | _Numbers = ()) -> _Call:
        """Batches laid out as blocks of larger images, then cropped."""

    @staticmethod
    def bias_add(data: _Operand, bias: _Operand, axis: int = 1) -> _Call:
        """data plus one bias per channel."""

    @staticmethod
    def cache_update(cache: _Operand, new: _Operand, start: _Operand, in_place: bool = False) -> _Call:
        """A cache with new rows from a position on."""

    @staticmethod
    def cached_attention(query: _Operand, key: _Operand, value: _Operand, start: _Operand, total: _Operand, sinks: _Operand, scale: float = 1.0, causal: bool = True, window: int = 0, softcap: float = 0.0) -> _Call:
        """Attention over the part of caches that counts."""

    @staticmethod
    def cached_masked_attention(query: _Operand, key: _Operand, value: _Operand, start: _Operand, total: _Operand, sinks: _Operand, mask: _Operand, scale: float = 1.0, causal: bool = True, window: int = 0, softcap: float = 0.0) -> _Call:
        """nn.cached_attention with a mask that is added to scores."""

    @staticmethod
    def cached_quantized_attention(query: _Operand, key: _Operand, value: _Operand, start: _Operand, total: _Operand, sinks: _Operand, key_scale: _Operand, value_scale: _Operand, scale: float = 1.0, causal: bool = True, window: int = 0, softcap: float = 0.0) -> _Call:
        """nn.cached_attention over caches of int8 with a scale for each row."""

    @staticmethod
    def contrib_conv2d_NCHWc(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), groups: int = 1, channels: int | None = None, kernel_size: _Numbers | None = None, data_layout: str = 'NCHW8c', kernel_layout: str = 'OIHW8i8o', out_layout: str = '', out_dtype: str = '', choice: str = '') -> _Call:
        """A convolution of channels in blocks."""

    @staticmethod
    def contrib_dense_pack(data: _Operand, weight: _Operand, weight_layout: str = 'NC8n', units: int | None = None, out_dtype: str = '', choice: str = '', is_symmetric: bool = False) -> _Call:
        """A dense layer whose weights lie in blocks of output units."""

    @staticmethod
    def contrib_depthwise_conv2d_NCHWc(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), groups: int = 1, channels: int | None = None, kernel_size: _Numbers | None = None, data_layout: str = 'NCHW8c', kernel_layout: str = 'OIHW1i8o', out_layout: str = '', out_dtype: str = '', choice: str = '') -> _Call:
        """A depthwise convolution of channels in blocks."""

    @staticmethod
    def conv1d(data: _Operand, weight: _Operand, strides: _Numbers = (1,), padding: _Numbers = (0,), dilation: _Numbers = (1,), groups: int = 1, channels: int | None = None, kernel_size: _Numbers | None = None, data_layout: str = 'NCW', kernel_layout: str = 'OIW', out_layout: str = '', out_dtype: str = '') -> _Call:
        """Convolution over one spatial axis."""

    @staticmethod
    def conv1d_transpose(data: _Operand, weight: _Operand, strides: _Numbers = (1,), padding: _Numbers = (0,), dilation: _Numbers = (1,), channels: int | None = None, kernel_size: _Numbers | None = None, groups: int = 1, data_layout: str = 'NCW', kernel_layout: str = 'IOW', out_layout: str = '', output_padding: _Numbers = (0,), out_dtype: str = '') -> _Call:
        """The transposed convolution over one axis."""

    @staticmethod
    def conv2d(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), groups: int = 1, channels: int | None = None, kernel_size: _Numbers | None = None, data_layout: str = 'NCHW', kernel_layout: str = 'OIHW', out_layout: str = '', out_dtype: str = '', choice: str = '') -> _Call:
        """Convolution over two spatial axes."""

    @staticmethod
    def conv2d_backward_weight(grad: _Expr, data: _Expr, strides: int | Sequence[int] = (1, 1), padding: int | Sequence[int] = (0, 0), dilation: int | Sequence[int] = (1, 1), groups: int = 1, channels: int | None = None, kernel_size: int | Sequence[int] | None = None, grad_layout: str = 'NCHW', data_layout: str = 'NCHW', kernel_layout: str = 'OIHW', out_dtype: str = '') -> _Expr:
        """The gradient of a convolution's weight, from the data and the gradient of the result."""

    @staticmethod
    def conv2d_transpose(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), channels: int | None = None, kernel_size: _Numbers | None = None, groups: int = 1, data_layout: str = 'NCHW', kernel_layout: str = 'IOHW', out_layout: str = '', output_padding: _Numbers = (0, 0), out_dtype: str = '') -> _Call:
        """The transposed convolution over two axes."""

    @staticmethod
    def conv3d(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1, 1), padding: _Numbers = (0, 0, 0), dilation: _Numbers = (1, 1, 1), groups: int = 1, channels: int | None = None, kernel_size: _Numbers | None = None, data_layout: str = 'NCDHW', kernel_layout: str = 'OIDHW', out_layout: str = '', out_dtype: str = '') -> _Call:
        """Convolution over three spatial axes."""

    @staticmethod
    def conv3d_transpose(data: _Operand, weight: _Operand, strides: _Numbers = (1, 1, 1), padding: _Numbers = (0, 0, 0), dilation: _Numbers = (1, 1, 1), channels: int | None = None, kernel_size: _Numbers | None = None, groups: int = 1, data_layout: str = 'NCDHW', kernel_layout: str = 'IODHW', out_layout: str = '', output_padding: _Numbers = (0, 0, 0), out_dtype: str = '') -> _Call:
        """The transposed convolution over three axes."""

    @staticmethod
    def correlation(data1: _Operand, data2: _Operand, kernel_size: int = 1, max_displacement: int = 1, stride1: int = 1, stride2: int = 1, padding: _Numbers = (0, 0), is_multiply: bool = True, layout: str = 'NCHW') -> _Call:
        """Likeness of displaced feature maps."""

    @staticmethod
    def cross_entropy(predictions: _Expr, targets: _Expr) -> _Expr:
        """-sum(targets * log(predictions)) / batch."""

    @staticmethod
    def cross_entropy_with_logits(predictions: _Expr, targets: _Expr) -> _Expr:
        """-sum(targets * predictions) / batch."""

    @staticmethod
    def deformable_conv2d(data: _Operand, offset: _Operand, weight: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), deformable_groups: int = 1, groups: int = 1, channels: int | None = None, kernel_size: _Numbers | None = None, data_layout: str = 'NCHW', kernel_layout: str = 'OIHW', out_layout: str = '', out_dtype: str = '') -> _Call:
        """A convolution whose taps read where offsets say."""

    @staticmethod
    def dense(data: _Operand, weight: _Operand, units: int | None = None, out_dtype: str = '', choice: str = '') -> _Call:
        """data times the transpose of weight."""

    @staticmethod
    def depth_to_space(data: _Operand, block_size: int = 2, layout: str = 'NCHW', mode: str = 'DCR') -> _Call:
        """Blocks of channels become blocks of pixels."""

    @staticmethod
    def dilate(data: _Operand, strides: _Numbers, dilation_value: float = 0.0) -> _Call:
        """A number between neighbouring elements."""

    @staticmethod
    def dropout(data: _Operand, rate: float = 0.5) -> _Call:
        """The data itself: dropout acts in training only."""

    @staticmethod
    def fast_softmax(data: _Operand, axis: int = -1) -> _Call:
        """nn.softmax by fast_exp."""

    @staticmethod
    def gelu(data: _Operand, approximate: str = 'none') -> _Call:
        """x times the normal distribution function of x."""

    @staticmethod
    def global_avg_pool1d(data: _Operand, layout: str = 'NCW', out_layout: str = '') -> _Call:
        """The mean of all positions."""

    @staticmethod
    def global_avg_pool2d(data: _Operand, layout: str = 'NCHW', out_layout: str = '') -> _Call:
        """The mean of all positions."""

    @staticmethod
    def global_avg_pool3d(data: _Operand, layout: str = 'NCDHW', out_layout: str = '') -> _Call:
        """The mean of all positions."""

    @staticmethod
    def global_max_pool1d(data: _Operand, layout: str = 'NCW', out_layout: str = '') -> _Call:
        """The maximum of all positions."""

    @staticmethod
    def global_max_pool2d(data: _Operand, layout: str = 'NCHW', out_layout: str = '') -> _Call:
        """The maximum of all positions."""

    @staticmethod
    def global_max_pool3d(data: _Operand, layout: str = 'NCDHW', out_layout: str = '') -> _Call:
        """The maximum of all positions."""

    @staticmethod
    def group_norm(data: _Operand, gamma: _Operand, beta: _Operand, num_groups: int = 1, axis: int = 1, epsilon: float = 1e-05, center: bool = True, scale: bool = True) -> _Call:
        """Groups of channels of each sample normalised by their mean and variance."""

    @staticmethod
    def grouped_dense(data: _Operand, weight: _Operand, group: _Operand) -> _Call:
        """Rows times the matrix of their group."""

    @staticmethod
    def instance_norm(data: _Operand, gamma: _Operand, beta: _Operand, axis: int = 1, epsilon: float = 1e-05, center: bool = True, scale: bool = True) -> _Call:
        """Each channel of each sample normalised by its own mean and variance."""

    @staticmethod
    def l2_normalize(data: _Operand, eps: float = 1e-12, axis: _Numbers | None = None) -> _Call:
        """The data divided by the root of the sum of squares along axes."""

    @staticmethod
    def layer_norm(data: _Operand, gamma: _Operand, beta: _Operand, axis: int = -1, epsilon: float = 1e-05, center: bool = True, scale: bool = True) -> _Call:
        """Each position normalised by the mean and variance along one axis."""

    @staticmethod
    def leaky_relu(data: _Operand, alpha: float = 0.01) -> _Call:
        """data where >= 0, else alpha * data."""

    @staticmethod
    def log_softmax(data: _Operand, axis: int = -1) -> _Call:
        """log(softmax(x)) along an axis."""

    @staticmethod
    def low_bit_dense(data: _Operand, weight: _Operand, scales: _Operand, zeros: _Operand, bits: int = 4, group: int = 32) -> _Call:
        """A dense layer whose weights are small integers with a scale per group."""

    @staticmethod
    def lrn(data: _Operand, size: int = 5, axis: int = 1, bias: float = 2.0, alpha: float = 1e-05, beta: float = 0.75) -> _Call:
        """Local response normalisation across an axis."""

    @staticmethod
    def lstm_cell(gates: _Operand, inputs: _Operand, step: _Operand, cell: _Operand) -> _Call:
        """One step of an LSTM."""

    @staticmethod
    def masked_attention(query: _Operand, key: _Operand, value: _Operand, mask: _Operand, scale: float = 1.0, heads: int = 0, query_layout: str = 'BTHD', key_layout: str = 'BTHD', value_layout: str = 'BTHD', out_layout: str = 'BTHD', offsets: _Numbers = (0, 0, 0), shared: int = 1, choice: str = '', blank: bool = False) -> _Call:
        """softmax(scale * query key^T + mask) value."""

    @staticmethod
    def matmul(tensor_a: _Operand, tensor_b: _Operand, units: int | None = None, out_dtype: str = '', transpose_a: bool = False, transpose_b: bool = False) -> _Call:
        """A product of two matrices."""

    @staticmethod
    def max_pool1d(data: _Operand, pool_size: Sequence[typing.Any] = (1,), strides: Sequence[typing.Any] = (1,), dilation: Sequence[typing.Any] = (1,), padding: Sequence[typing.Any] = (0,), layout: str = 'NCW', out_layout: str = '', ceil_mode: bool = False) -> _Call:
        """The maximum of each window."""

    @staticmethod
    def max_pool2d(data: _Operand, pool_size: Sequence[typing.Any] = (1, 1), strides: Sequence[typing.Any] = (1, 1), dilation: Sequence[typing.Any] = (1, 1), padding: Sequence[typing.Any] = (0, 0), layout: str = 'NCHW', out_layout: str = '', ceil_mode: bool = False) -> _Call:
        """The maximum of each window."""

    @staticmethod
    def max_pool2d_grad(out_grad: _Expr, data: _Expr, pool_size: int | Sequence[int] = (1, 1), strides: int | Sequence[int] = (1, 1), padding: int | Sequence[int] = (0, 0), layout: str = 'NCHW', out_layout: str = '', ceil_mode: bool = False) -> _Expr:
        """The gradient of a maximum pooling's data."""

    @staticmethod
    def max_pool3d(data: _Operand, pool_size: Sequence[typing.Any] = (1, 1, 1), strides: Sequence[typing.Any] = (1, 1, 1), dilation: Sequence[typing.Any] = (1, 1, 1), padding: Sequence[typing.Any] = (0, 0, 0), layout: str = 'NCDHW', out_layout: str = '', ceil_mode: bool = False) -> _Call:
        """The maximum of each window."""

    @staticmethod
    def max_pool_with_indices(data: _Operand, pool_size: _Numbers = (1,), strides: _Numbers = (1,), dilation: _Numbers = (1,), padding: _Numbers = (0,), ceil_mode: bool = False, storage_order: int = 0, layout: str = 'NCHW', out_layout: str = '') -> _Call:
        """Maximum of each window and where it is."""

    @staticmethod
    def mirror_pad(data: _Operand, pad_width: Sequence[Sequence[int]] | _Numbers = (), mode: str = 'SYMMETRIC') -> _Call:
        """The data with a border of its own mirror image."""

    @staticmethod
    def narrow_dense(data: _Operand, weight: _Operand) -> _Call:
        """A dense layer whose weights are 16-bit floats."""

    @staticmethod
    def nll_loss(predictions: _Expr, targets: _Expr, weights: _Expr, reduction: str = 'mean', ignore_index: int = -100) -> _Expr:
        """The negative weighted log-likelihood of each target class; `predictions` is (N, C, …) of log-probabilities, or (C,) with one target."""

    @staticmethod
    def pad(data: _Expr, pad_width: object = (), pad_value: object = 0.0, pad_mode: str = 'constant') -> _Expr:
        """A border around the data; where a width is negative, that much of the data goes."""

    @staticmethod
    def prelu(data: _Operand, alpha: _Operand, axis: int = 1) -> _Call:
        """leaky_relu with one alpha per channel."""

    @staticmethod
    def relu(data: _Operand) -> _Call:
        """max(data, 0)."""

    @staticmethod
    def rms_norm(data: _Operand, weight: _Operand, axis: int = -1, epsilon: float = 1e-05) -> _Call:
        """Each position divided by the root of the mean of squares along one axis."""

    @staticmethod
    def softmax(data: _Operand, axis: int = -1) -> _Call:
        """exp(x) / sum(exp(x)) along an axis."""

    @staticmethod
    def space_to_batch_nd(data: _Operand, block_shape: _Numbers = (), paddings: Sequence[Sequence[int]] | _Numbers = (), pad_value: float = 0.0) -> _Call:
        """Blocks of the padded data, each position of a block as one more batch."""

    @staticmethod
    def space_to_depth(data: _Operand, block_size: int = 2, layout: str = 'NCHW', mode: str = 'DCR') -> _Call:
        """Blocks of pixels become channels."""

    @staticmethod
    def sparse_add(dense_mat: _Expr, *sparse_mat: object) -> _Expr:
        """dense_mat plus the sparse matrix."""

    @staticmethod
    def sparse_conv2d(dense_mat: _Expr, *arguments: object, layout: str = 'NHWC', kernel_size: int = 1) -> _Expr:
        """The convolution with stride 1 that keeps the image's size: each row of the sparse matrix is one output's kernel. A row runs over (channel, y, x) where the data is NCHW, over (y, x, channel) where it is NHWC. `arguments` is the matrix, then layout and kernel size if they are not named."""

    @staticmethod
    def sparse_dense(dense_mat: _Expr, *sparse_mat: object, sparse_lhs: bool = False) -> _Expr:
        """dense_mat times the transpose of the sparse matrix; `sparse_lhs`: the sparse one times that of dense_mat."""

    @staticmethod
    def sparse_transpose(*sparse_mat: object) -> TupleWrapper:
        """(data, indices, indptr) of the transpose of a square CSR matrix: its elements in the order of their columns."""

    @staticmethod
    def standardize(data: _Operand, axis: _Numbers = -1, epsilon: float = 1e-05, center: bool = True) -> _Call:
        """Zero mean (if center) and unit variance along axes."""

    @staticmethod
    def two_level_dense(data: _Operand, weight: _Operand, scales: _Operand, zeros: _Operand, minima: _Operand, tops: _Operand, bits: int = 4, group: int = 32) -> _Call:
        """nn.low_bit_dense with scales of scales, and a minimum per group."""

    @staticmethod
    def upsampling(data: _Operand, scale_h: float = 1.0, scale_w: float = 1.0, layout: str = 'NCHW', method: str = 'nearest_neighbor', align_corners: bool = False) -> _Call:
        """image.resize2d by factors."""

    @staticmethod
    def upsampling3d(data: _Operand, scale_d: float = 1.0, scale_h: float = 1.0, scale_w: float = 1.0, layout: str = 'NCDHW', method: str = 'nearest_neighbor', coordinate_transformation_mode: str = 'half_pixel') -> _Call:
        """image.resize3d by factors."""


nn: _Nn

class _Qnn:
    """Operators `qnn.*`."""

    op: _Qnn
    def __getattr__(self, name: str) -> typing.Any: ...
    @staticmethod
    def abs(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """abs of affine integers, by table."""

    @staticmethod
    def add(lhs: _Operand, rhs: _Operand, lhs_scale: _Operand, lhs_zero_point: _Operand, rhs_scale: _Operand, rhs_zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand, lhs_axis: int = -1, rhs_axis: int = -1) -> _Call:
        """The sum of two affine-integer tensors, broadcasting."""

    @staticmethod
    def avg_pool2d(data: _Operand, input_scale: _Operand, input_zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand, pool_size: _Numbers = (1, 1), strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), ceil_mode: bool = False, count_include_pad: bool = True, layout: str = 'NCHW', out_layout: str = '') -> _Call:
        """nn.avg_pool2d of affine integers."""

    @staticmethod
    def batch_matmul(x: _Operand, y: _Operand, x_zero_point: _Operand, y_zero_point: _Operand, x_scale: _Operand, y_scale: _Operand, out_dtype: str = 'int32', transpose_b: bool = True) -> _Call:
        """nn.batch_matmul of affine integers, in int32."""

    @staticmethod
    def concatenate(data: _Operands, input_scales: _Operands, input_zero_points: _Operands, output_scale: _Operand, output_zero_point: _Operand, axis: int = 0) -> _Call:
        """Affine-integer tensors one after another, brought to one scale. The first three inputs are tuples."""

    @staticmethod
    def conv2d(data: _Operand, weight: _Operand, input_zero_point: _Operand, kernel_zero_point: _Operand, input_scale: _Operand, kernel_scale: _Operand, kernel_size: _Numbers | None = None, channels: int | None = None, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), groups: int = 1, data_layout: str = 'NCHW', kernel_layout: str = 'OIHW', out_layout: str = '', out_dtype: str = 'int32') -> _Call:
        """nn.conv2d of affine integers, in int32."""

    @staticmethod
    def conv2d_transpose(data: _Operand, weight: _Operand, input_zero_point: _Operand, kernel_zero_point: _Operand, input_scale: _Operand, kernel_scale: _Operand, strides: _Numbers = (1, 1), padding: _Numbers = (0, 0), dilation: _Numbers = (1, 1), channels: int | None = None, kernel_size: _Numbers | None = None, groups: int = 1, data_layout: str = 'NCHW', kernel_layout: str = 'IOHW', out_layout: str = '', output_padding: _Numbers = (0, 0), out_dtype: str = 'int32') -> _Call:
        """nn.conv2d_transpose of affine integers, in int32."""

    @staticmethod
    def dense(data: _Operand, weight: _Operand, input_zero_point: _Operand, kernel_zero_point: _Operand, input_scale: _Operand, kernel_scale: _Operand, units: int | None = None, out_dtype: str = 'int32') -> _Call:
        """nn.dense of affine integers, in int32."""

    @staticmethod
    def dequantize(data: _Operand, input_scale: _Operand, input_zero_point: _Operand, axis: int = -1, out_dtype: str = 'float32') -> _Call:
        """(data - zero_point) * scale."""

    @staticmethod
    def erf(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """erf of affine integers, by table."""

    @staticmethod
    def exp(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """exp of affine integers, by table."""

    @staticmethod
    def hardswish(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """hardswish of affine integers, by table."""

    @staticmethod
    def leaky_relu(x: _Expr, alpha: float, input_scale: _Expr, input_zero_point: _Expr, output_scale: _Expr, output_zero_point: _Expr) -> _Expr:
        """nn.leaky_relu of affine integers, in the argument order of scripts."""

    @staticmethod
    def log(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """log of affine integers, by table."""

    @staticmethod
    def mul(lhs: _Operand, rhs: _Operand, lhs_scale: _Operand, lhs_zero_point: _Operand, rhs_scale: _Operand, rhs_zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand, lhs_axis: int = -1, rhs_axis: int = -1) -> _Call:
        """Product of two affine-integer tensors, broadcasting."""

    @staticmethod
    def quantize(data: _Operand, output_scale: _Operand, output_zero_point: _Operand, axis: int = -1, out_dtype: str = 'int8') -> _Call:
        """saturate(round(data / scale) + zero_point); halves go to even."""

    @staticmethod
    def requantize(data: _Operand, input_scale: _Operand, input_zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand, axis: int = -1, rounding: str = 'None', compute_dtype: str = 'None', out_dtype: str = 'int8') -> _Call:
        """The integers of another scale and zero point for the same real numbers."""

    @staticmethod
    def rsqrt(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """rsqrt of affine integers, by table."""

    @staticmethod
    def sigmoid(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """sigmoid of affine integers, by table."""

    @staticmethod
    def simulated_dequantize(data: _Expr, input_scale: _Expr, input_zero_point: _Expr, axis: int = -1, in_dtype: str | _Expr = 'int8') -> _Expr:
        """qnn.dequantize of integers in float32. The type may be an input: a number of SQNN_DTYPE_TO_CODE."""

    @staticmethod
    def simulated_quantize(data: _Expr, output_scale: _Expr, output_zero_point: _Expr, axis: int = -1, out_dtype: str | _Expr = 'int8') -> _Expr:
        """qnn.quantize with its result in float32. The type may be an input: a number of SQNN_DTYPE_TO_CODE."""

    @staticmethod
    def softmax(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand, axis: int = -1) -> _Call:
        """nn.softmax of affine integers, in integers."""

    @staticmethod
    def sqrt(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """sqrt of affine integers, by table."""

    @staticmethod
    def subtract(lhs: _Operand, rhs: _Operand, lhs_scale: _Operand, lhs_zero_point: _Operand, rhs_scale: _Operand, rhs_zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand, lhs_axis: int = -1, rhs_axis: int = -1) -> _Call:
        """The difference of two such tensors."""

    @staticmethod
    def tanh(x: _Operand, scale: _Operand, zero_point: _Operand, output_scale: _Operand, output_zero_point: _Operand) -> _Call:
        """tanh of affine integers, by table."""


qnn: _Qnn

class _Random:
    """Operators `random.*`."""

    @staticmethod
    def multinomial(key: _Expr, probs: _Expr, num_samples: int) -> TupleWrapper:
        """The next key, and positions drawn by weights along the last axis; weights below zero count as zero."""

    @staticmethod
    def normal(key: _Expr, shape: Sequence[int], dtype: str = 'float32', mean: _Expr | float = 0.0, scale: _Expr | float = 1.0) -> TupleWrapper:
        """The next key, and normally distributed numbers, by the transform of Box and Muller."""

    @staticmethod
    def threefry_generate(key: _Operand, out_shape: _Numbers) -> _Call:
        """The next key, and random 64-bit numbers."""

    @staticmethod
    def threefry_key(seed: int) -> Constant:
        """The key of a seed, as a constant."""

    @staticmethod
    def threefry_split(key: _Operand) -> _Call:
        """Two keys of one, with different numbers."""

    @staticmethod
    def uniform(key: _Expr, shape: Sequence[int], dtype: str = 'float32', low: _Expr | float = 0.0, high: _Expr | float = 1.0) -> TupleWrapper:
        """The next key, and numbers evenly spread over [low, high)."""


random: _Random

class _Vision:
    """Operators `vision.*`."""

    @staticmethod
    def all_class_non_max_suppression(boxes: _Expr, scores: _Expr, max_output_boxes_per_class: _Expr | int = -1, iou_threshold: _Expr | float = -1.0, score_threshold: _Expr | float = -1.0, output_format: str = 'onnx') -> TupleWrapper:
        """`relay.vision.all_class_non_max_suppression`: limits may be numbers."""

    @staticmethod
    def get_valid_counts(data: _Operand, score_threshold: float = 0.0, id_index: int = 0, score_index: int = 1) -> _Call:
        """The boxes whose scores exceed a threshold, first."""

    @staticmethod
    def multibox_prior(data: _Operand, sizes: Sequence[float] = (1.0,), ratios: Sequence[float] = (1.0,), steps: Sequence[float] = (-1.0, -1.0), offsets: Sequence[float] = (0.5, 0.5), clip: bool = False) -> _Call:
        """The boxes that SSD starts from."""

    @staticmethod
    def multibox_transform_loc(cls_prob: _Operand, loc_pred: _Operand, anchor: _Operand, clip: bool = True, threshold: float = 0.01, variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2), keep_background: bool = False) -> _Call:
        """SSD's boxes, those with a class first."""

    @staticmethod
    def non_max_suppression(data: _Expr, valid_count: _Expr, indices: _Expr, max_output_size: _Expr | int = -1, iou_threshold: _Expr | float = 0.5, **attrs: bool | int) -> _Expr:
        """`relay.vision.non_max_suppression`: limits may be numbers."""

    @staticmethod
    def proposal(cls_prob: _Operand, bbox_pred: _Operand, im_info: _Operand, scales: Sequence[float] = (4.0, 8.0, 16.0, 32.0), ratios: Sequence[float] = (0.5, 1.0, 2.0), feature_stride: int = 16, threshold: float = 0.7, rpn_pre_nms_top_n: int = 6000, rpn_post_nms_top_n: int = 300, rpn_min_size: int = 16, iou_loss: bool = False) -> _Call:
        """Regions that a region proposal network suggests."""

    @staticmethod
    def roi_align(data: _Operand, rois: _Operand, pooled_size: _Numbers = (1, 1), spatial_scale: float = 1.0, sample_ratio: int = -1, layout: str = 'NCHW', mode: str = 'avg', half_pixel: bool = False) -> _Call:
        """Regions pooled from bilinear samples."""

    @staticmethod
    def roi_pool(data: _Operand, rois: _Operand, pooled_size: _Numbers = (1, 1), spatial_scale: float = 1.0, layout: str = 'NCHW') -> _Call:
        """Maxima of the cells of regions."""

    @staticmethod
    def suppress_overlaps(boxes: _Operand, scores: _Operand, iou_threshold: _Operand, score_threshold: _Operand, most: typing.Any, centred: bool = False, has_least: bool = True) -> _Call:
        """Boxes that overlap no better one of their class."""

    @staticmethod
    def yolo_reorg(data: _Operand, stride: int = 1) -> _Call:
        """Channels of YOLO's passthrough layer."""


vision: _Vision
