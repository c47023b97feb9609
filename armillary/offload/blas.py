"""Products of matrices by the BLAS of the system: `llvm -libs=cblas` (mkl, dnnl), or in a list of targets.

In: nn.dense, nn.matmul and nn.batch_matmul of float32, by cblas and mkl of float64 too, of known sizes. Out: C source
that is linked with the kernels and calls `cblas_?gemm` (`dnnl_sgemm`), a call for each batch. Invariant: the library is
looked for where the code runs, once, among what the process has loaded and then by the names below; without it a run
ends with an error that says so. A build for this machine says so first (driver/libraries.py).
Source: the reference BLAS' CBLAS interface (order, transposes, leading dimensions); oneDNN's BLAS functions.
"""

from __future__ import annotations

import ctypes
from functools import partial

from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.offload.contract import Offload, SourceModule, register_offload
from armillary.offload.rows import first, is_dtype, is_rank, name_of, tensor
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.offload_tables import Predicate
from armillary.relay.types import TensorType

_RANKS = {"nn.dense": (2, 2), "nn.matmul": (2, 2), "nn.batch_matmul": (3, 3)}


@record(slots=True)
class _Blas:
    """A library: file names, the function for each dtype, its C type, and how it is called."""

    name: str
    files: tuple[str, ...]
    functions: dict[str, str]  # by dtype
    pointer: str  # the type `function`
    call: str


_CBLAS_FILES = ("libopenblas.so.0", "libblis.so.4", "libcblas.so.3", "libblas.so.3", "libmkl_rt.so.2")
_CBLAS = {"float32": "cblas_sgemm", "float64": "cblas_dgemm"}
_POINTER = (
    "void (*function)(int, int, int, int, int, int, REAL, const REAL *, int, const REAL *, int, REAL, REAL *, int)"
)
_CALL = "gemm(101, {ta} ? 112 : 111, {tb} ? 112 : 111, {m}, {n}, {k}, 1, a, {lda}, b, {ldb}, 0, c, {n})"
LIBRARIES = (
    _Blas("cblas", _CBLAS_FILES, _CBLAS, _POINTER, _CALL),
    _Blas("mkl", ("libmkl_rt.so.2", "libmkl_rt.so.3", "libmkl_rt.so.1", "libmkl_rt.so"), _CBLAS, _POINTER, _CALL),
    _Blas(
        "dnnl",
        ("libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"),
        {"float32": "dnnl_sgemm"},
        "int (*function)(char, char, int64_t, int64_t, int64_t, REAL, const REAL *, int64_t, const REAL *, int64_t, "
        "REAL, REAL *, int64_t)",
        "gemm({ta} ? 'T' : 'N', {tb} ? 'T' : 'N', {m}, {n}, {k}, 1, a, {lda}, b, {ldb}, 0, c, {n})",
    ),
)
_SOURCE = """#include <dlfcn.h>
#include <stdint.h>
#include <stddef.h>
#define REAL {real}
typedef {pointer};
static void *find(void) {{ /* the function; of a file that has none, nothing stays loaded */
  static const char *const files[] = {{NULL, {files}}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {{
    void *library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "{function}");
    if (symbol != NULL) return symbol;
    if (library != NULL) dlclose(library);
  }}
  return NULL;
}}
int32_t {symbol}__p0(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {{
  static void *known;
  void *symbol = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (symbol == NULL) __atomic_store_n(&known, symbol = find(), __ATOMIC_RELEASE);
  if (symbol == NULL) return 1;
  function gemm = (function)symbol;
  (void)vars, (void)begin, (void)end, (void)thread;
  for (int64_t i = 0; i < {batch}; i++) {{
    const REAL *a = (const REAL *)data[{first}] + i * {step_a}, *b = (const REAL *)data[{second}] + i * {step_b};
    REAL *c = (REAL *)data[{out}] + i * {step_c};
    {call};
  }}
  return 0;
}}
"""


def _refusal(library: _Blas, call: Call) -> str | None:
    """Why the library does not take a product; None where it does."""
    kinds, ranks = tuple(library.functions), _RANKS[name_of(call)]
    operands = list(zip(("data", "weight"), call.args, ranks, strict=True))
    reason = first(
        *(is_dtype(expr, what, *kinds) for what, expr, _ in operands),
        *(is_rank(expr, what, rank) for what, expr, rank in operands),
        is_dtype(call, "the result", *kinds),
    )
    types = [tensor(expr) for expr in (*call.args, call)]
    names = {str(ty.dtype) for ty in types if ty is not None}
    if reason is not None or len(names) == 1:
        return reason
    return f"operands and result are {' and '.join(sorted(names))}, wanted one type"


def _generate(library: _Blas, function: Function) -> SourceModule:
    """The C source of one product. Raises UnsupportedError where a script gave the library something else."""
    call = function.body
    if not isinstance(call, Call) or name_of(call) not in _RANKS or _refusal(library, call) is not None:
        raise UnsupportedError(f"{library.name} computes nn.dense, nn.matmul and nn.batch_matmul", span=function.span)
    params = {id(param): number for number, param in enumerate(function.params)}
    constants = tuple({id(arg): arg for arg in call.args if isinstance(arg, Constant)}.values())
    places = params | {id(constant): len(params) + number for number, constant in enumerate(constants)}
    (*batch_a, rows_a, columns_a), (*batch_b, rows_b, columns_b) = (_shape(arg) for arg in call.args)
    turned_a = bool(getattr(call.attrs, "transpose_a", False))
    turned_b = bool(getattr(call.attrs, "transpose_b", True))  # of nn.dense, which has no attribute, always
    *batch, m, n = _shape(call)
    names = ", ".join(f'"{name}"' for name in library.files)
    dtype = str(_type(call).dtype)
    sizes = {"m": m, "n": n, "k": rows_a if turned_a else columns_a, "lda": columns_a, "ldb": columns_b}
    source = _SOURCE.format(
        real="float" if dtype == "float32" else "double",
        pointer=library.pointer,
        files=names,
        function=library.functions[dtype],
        symbol=function.get_attr("global_symbol"),
        batch=batch[0] if batch else 1,
        first=places[id(call.args[0])],
        second=places[id(call.args[1])],
        out=len(params) + len(constants),
        step_a=rows_a * columns_a if batch_a and batch_a[0] > 1 else 0,
        step_b=rows_b * columns_b if batch_b and batch_b[0] > 1 else 0,
        step_c=m * n,
        call=library.call.format(ta=int(turned_a), tb=int(turned_b), **sizes),
    )
    return SourceModule(source, constants, (_absence(library),))


def _type(expr: Expr) -> TensorType:
    ty = tensor(expr)
    assert ty is not None, "predicates made sure that it is known"
    return ty


def _shape(expr: Expr) -> tuple[int, ...]:
    return _type(expr).static


def _absence(library: _Blas) -> str:
    names = ", ".join(library.files)
    function = next(iter(library.functions.values()))
    return f"none of {names} with {function} can be loaded; install it, or build without {library.name}"


def _is_absent(library: _Blas) -> str | None:
    """Why the library cannot be called from this process; None where it can."""
    for name in (None, *library.files):
        try:
            loaded = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(loaded, next(iter(library.functions.values()))):
            return None
    return _absence(library)


for _library in LIBRARIES:
    _rows: dict[str, Predicate] = dict.fromkeys(_RANKS, partial(_refusal, _library))
    register_offload(
        Offload(_library.name, partial(_generate, _library), operators=_rows, absence=partial(_is_absent, _library))
    )
