"""`-libs=cblas`: products by a BLAS, found where the code runs; an error that names it where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.base.config import setting
from armillary.contrib import graph_executor
from armillary.contrib.cc import get_cc
from armillary.errors import ArmillaryError, ConfigError
from armillary.ir import IRModule
from armillary.offload.contract import find_offload

CBLAS = """#include <stdio.h>
#define GEMM(name, real) \\
void name(int order, int ta, int tb, int m, int n, int k, real alpha, const real *a, int lda, const real *b, int ldb, \\
          real beta, real *c, int ldc) { \\
  if (order != 101) return; \\
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) { \\
    double sum = 0; \\
    for (int x = 0; x < k; x++) \\
      sum += (double)a[ta == 112 ? x * lda + i : i * lda + x] * b[tb == 112 ? j * ldb + x : x * ldb + j]; \\
    c[i * ldc + j] = (real)(alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j])); } \\
  fprintf(stderr, #name " %d %d %d\\n", m, n, k); }
GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)
"""
SCRIPT = """
import sys, numpy as np
sys.path.insert(0, {folder!r})
from test_blas import check
check({dtype!r}, {target!r}, {package!r})
"""


def network(dtype: str) -> tuple[IRModule, dict[str, np.ndarray], list[np.ndarray]]:
    """A dense layer, products of batches, transposed or one for all, with what numpy says."""
    rng = np.random.default_rng(0)
    x, b, w = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 7), (4, 6, 5), (3, 7)))
    var_x, var_b = relay.var("x", shape=(5, 7), dtype=dtype), relay.var("b", shape=(4, 6, 5), dtype=dtype)
    dense = relay.nn.dense(var_x, relay.const(w))
    batches = relay.nn.batch_matmul(var_b, relay.expand_dims(dense, 0), transpose_b=False)
    turned = relay.nn.batch_matmul(batches, batches, transpose_a=True, transpose_b=False)
    plain = relay.nn.matmul(relay.const(w), dense, transpose_a=True, transpose_b=True)
    wanted = [b @ (x @ w.T)]
    wanted += [wanted[0].swapaxes(1, 2) @ wanted[0], w.T @ (x @ w.T).T]
    body = relay.Tuple([batches, turned, plain])
    return IRModule.from_expr(relay.Function([var_x, var_b], body)), {"x": x, "b": b}, wanted


def check(dtype: str, target: str, package: str = "") -> None:
    """Build, perhaps export and load again, run, compare."""
    module, inputs, wanted = network(dtype)
    library = relay.build(module, target)
    if package:
        library.export_library(package)
    loaded = armillary.runtime.load_module(package) if package else library
    executor = graph_executor.GraphModule(loaded["default"](armillary.cpu()))
    executor.run(**inputs)
    for k, value in enumerate(wanted):
        np.testing.assert_allclose(executor.get_output(k).numpy(), value, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a CBLAS of our own lies, which says when it is called."""
    place = tmp_path_factory.mktemp("cblas")
    (place / "cblas.c").write_text(CBLAS)
    command = [*get_cc(), "-O1", "-shared", "-fPIC", str(place / "cblas.c"), "-o", str(place / "libopenblas.so.0")]
    subprocess.run(command, check=True)
    return place


@pytest.mark.parametrize("package", ["", "net.so", "net.tar"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_computed_by_the_library(dtype: str, package: str, folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / package) if package else ""
    code = SCRIPT.format(folder=str(Path(__file__).parent), dtype=dtype, target="llvm -libs=cblas", package=path)
    environment = {"LD_LIBRARY_PATH": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name = "cblas_sgemm" if dtype == "float32" else "cblas_dgemm"
    called = [line for line in done.stderr.splitlines() if line.startswith(name)]
    assert sorted(set(called)) == [f"{name} 3 3 6", f"{name} 5 3 7", f"{name} 6 3 5", f"{name} 7 5 3"]
    assert len(called) == 1 + 4 + 4 + 1


def test_the_systems_own_blas_gives_what_numpy_gives() -> None:
    if find_offload("cblas").absence() is not None:
        assert not setting("CI"), "CI lacks a BLAS"
        pytest.skip("no BLAS is installed")
    check("float32", "cblas, llvm")


def _skip_if_installed(name: str) -> None:
    if find_offload(name).absence() is None:
        pytest.skip(f"{name} is installed")


def test_a_library_that_is_not_there_is_an_error_of_the_build() -> None:
    _skip_if_installed("dnnl")
    with pytest.raises(ConfigError, match=r"libs: dnnl: none of libdnnl.so.3, .* with dnnl_sgemm can be loaded"):
        relay.build(network("float32")[0], "llvm -libs=dnnl")
    with pytest.raises(ConfigError, match="there is no library 'nnpack' to offload to"):
        relay.build(network("float32")[0], "llvm -libs=nnpack")


def test_where_the_code_runs_without_it_the_run_says_so() -> None:
    """A list of targets is not checked while compiling: it may run elsewhere."""
    _skip_if_installed("dnnl")
    with pytest.raises(ArmillaryError, match="dnnl_sgemm can be loaded; install it, or build without dnnl"):
        check("float32", "dnnl, llvm")


def test_what_a_blas_has_no_function_for_stays_with_our_kernels() -> None:
    x = relay.var("x", shape=(5, 7), dtype="int8")
    body = relay.nn.dense(x, relay.const(np.ones((3, 7), "int8")), out_dtype="int32")
    library = relay.build(IRModule.from_expr(relay.Function([x], body)), "cblas, llvm")
    assert "data is int8, wanted float32 or float64" in str(library.offload_report)
