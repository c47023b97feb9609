"""The runtime of OpenCLML, compiled and run without SDK and device: what it does with the library, in which order.

The headers of this test hold the names that the runtime's own source uses, and nothing else of the library: every type
takes any values, every function writes down its name and gives what its pointers ask for. So what is checked is our
part: which function each operator of the stored cases becomes, the order of copies, and that all is released.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import armillary
from armillary.base.config import setting
from armillary.offload.clml import generate

sys.path.insert(0, str(Path(__file__).parent))
from test_clml import CASES, bound, parts

PACKAGE = Path(armillary.__file__).parent
NATIVE = PACKAGE / "offload" / "clml" / "native"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(COMPILER is None and not setting("CI"), reason="no C++ compiler")

OPENCL = r"""
#pragma once
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
typedef int cl_int; typedef unsigned cl_uint; typedef unsigned cl_bool; typedef unsigned cl_channel_type;
typedef void *cl_context; typedef void *cl_device_id; typedef void *cl_command_queue; typedef void *cl_mem;
inline int asked(const char *name) { const char *text = std::getenv(name); return text ? std::atoi(text) : 0; }
enum { CL_SUCCESS, CL_DEVICE_EXTENSIONS, CL_MEM_READ_WRITE, CL_FLOAT, CL_HALF_FLOAT };
inline char handles[1 << 20]; inline char *next_handle = handles;
inline cl_int clGetDeviceInfo(cl_device_id, int, size_t room, void *to, size_t *size) {
  static const char text[] = "cl_qcom_ml_ops";
  if (size) *size = sizeof text;
  if (to) std::memcpy(to, text, room);
  return 0;
}
inline cl_int clFinish(cl_command_queue) { std::puts("clFinish"); return 0; }
inline cl_mem clCreateBuffer(cl_context, int, size_t, void *, cl_int *code) {
  std::puts("clCreateBuffer"); *code = 0; return ++next_handle;
}
inline cl_int clReleaseMemObject(cl_mem) { std::puts("clReleaseMemObject"); return 0; }
"""
HEAD = r"""
#pragma once
#include <initializer_list>
#include <type_traits>
#define CL_QCOM_ML_OPS_H_MAJOR_VERSION 9
// What a field is given: a value, or some in braces.
struct Given {
  template <typename T> Given(const T &) {}
  Given(std::initializer_list<Given>) {}
};
inline void answer(unsigned *to) { *to = 64; }
inline void answer(size_t *to) { *to = 3; }
template <typename T> void answer(T **to) { *to = reinterpret_cast<T *>(++next_handle); }
template <typename T> void answer(const T &) {}
struct Function {
  const char *name;
  template <typename... A> cl_int operator()(A... arguments) const {
    std::puts(name);
    (answer(arguments), ...);
    return asked("REFUSAL");
  }
};
"""
VERSIONS = r"""
template <typename A, typename B> cl_int clQueryMLInterfaceVersionsQCOM(A major, B, unsigned room, cl_uint *count) {
  if (count) *count = 1;
  if constexpr (!std::is_same_v<A, std::nullptr_t>) if (room) *major = asked("VERSION");
  return 0;
}
inline const Table *clGetMLInterfaceV9QCOM(int) { static const Table table; return &table; }
"""
MAIN = r"""
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>
#include "arm_external.h"
extern "C" const arm_external_api *armillary_external(void);
static int memory(const arm_external_host *, const void *address, size_t, void **mem, char *, size_t) {
  *mem = const_cast<void *>(address);
  return 0;
}
int main(int, char **argv) {
  std::ifstream file(argv[1]);
  std::stringstream text;
  text << file.rdbuf();
  std::string source = text.str();
  int inputs = std::stoi(argv[2]), constants = std::stoi(argv[3]), outputs = std::stoi(argv[4]);
  static float bytes[64];
  arm_tensor one = {};
  one.data = bytes;
  std::vector<arm_tensor> tensors(64, one);
  arm_external_host host = {};
  host.abi = ARM_EXTERNAL_ABI, host.cl_queue = host.cl_context = host.cl_device = bytes, host.cl_memory = memory;
  arm_external_function function = {"main_0", source.c_str(), source.size(), tensors.data(), constants};
  const arm_external_api *api = armillary_external();
  char told[256] = "";
  void *handle = nullptr;
  if (api->create(&function, &host, &handle, told, sizeof told) != 0) return std::cerr << told, 1;
  std::puts("-- run"), std::fflush(stdout);
  if (api->run(handle, tensors.data(), inputs, tensors.data(), outputs, told, sizeof told) != 0)
    return std::cerr << told, 2;
  std::puts("-- end");
  api->destroy(handle);
}
"""
POINTERS = ("cl_ml_op_qcom", "cl_ml_tensor_qcom", "cl_ml_tuningcache_qcom", "cl_ml_tensor_mem_desc_set_qcom")


def headers(source: str) -> str:
    """Types, numbers and functions that a source names."""
    types = sorted(set(re.findall(r"\bcl_\w+_qcom\b", source)) - set(POINTERS) - {"cl_qcom_ml_ops"})
    numbers = sorted(set(re.findall(r"\bCL_[A-Z0-9_]+\b", source)))
    functions = sorted(set(re.findall(r"ml(?:->|\.)(cl\w+QCOM)\(", source)))
    known = set(re.findall(r"\bCL_[A-Z_0-9]+\b", OPENCL)) | {
        "CL_QCOM_ML_OPS_H_MAJOR_VERSION",
        "CL_TARGET_OPENCL_VERSION",
    }
    lines = [HEAD, f"enum {{ {', '.join(n for n in numbers if n not in known)} }};"]
    lines += [f"typedef struct {name}_ {{}} *{name};" for name in POINTERS]
    for name in types:
        if "_desc_" in name:
            body = f"{name}() {{}} {name}(std::initializer_list<Given>) {{}} unsigned num_dimensions = 0;"
            lines.append(f"struct {name} {{ {body} }};")
        else:
            lines.append(f"typedef long {name};")
    table = " ".join(f'Function {name}{{"{name}"}};' for name in functions)
    return "\n".join([*lines, f"struct Table {{ {table} }};", VERSIONS])


def built(folder: Path) -> Path:
    """The runtime and a program that calls it."""
    (folder / "CL").mkdir()
    (folder / "CL" / "cl.h").write_text(OPENCL)
    source = NATIVE / "clml_runtime.cpp"
    (folder / "CL" / "cl_qcom_ml_ops.h").write_text(headers(source.read_text()))
    (folder / "main.cpp").write_text(MAIN)
    folders = folder, PACKAGE / "offload" / "native", NATIVE, PACKAGE / "runtime" / "include"
    flags = ["-std=c++17", "-O0", *(f"-I{place}" for place in folders)]
    command = [str(COMPILER), *flags, str(source), str(folder / "main.cpp"), "-o", str(folder / "main")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return folder / "main"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("clml"))


def graphs() -> list[tuple[str, dict[str, object]]]:
    """The JSON of every part of every stored case."""
    return [(case.name, json.loads(generate(part).source)) for case in CASES for part in parts(bound(case.input))]


def called(
    program: Path, graph: dict[str, list[dict[str, str]]], version: int = 9, refusal: int = 0
) -> subprocess.CompletedProcess[str]:
    file = program.with_name("graph.json")
    file.write_text(json.dumps(graph))
    kinds = Counter(node["op"] for node in graph["nodes"])
    numbers = kinds["input"], kinds["const"], len(graph["heads"])
    words = [str(program), str(file), *map(str, numbers)]
    env = {"VERSION": str(version), "REFUSAL": str(refusal)}
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=env)


FUNCTION = {  # of the library, by operator; a convolution's depends on what is fused to it
    "nn.dense": ("Convolution", "Gemm"),
    "nn.batch_matmul": ("Gemm",),
    "nn.batch_norm": ("BatchNorm",),
    "nn.softmax": ("Softmax",),
    "nn.pad": ("Pad",),
    "nn.batch_flatten": ("Reshape",),
    "reshape": ("Reshape",),
    "concatenate": ("Concat",),
    "clip": ("Clip",),
    "nn.depth_to_space": ("DepthToSpace",),
    "nn.upsampling": ("ResizeBilinear",),
    **dict.fromkeys(("nn.relu", "nn.relu6"), ("Activation",)),
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d", "nn.global_avg_pool2d"), ("Pooling",)),
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "minimum", "maximum"), ("Binary",)),
}


def expected(node: dict[str, object]) -> tuple[str, ...]:
    name, attrs = node["name"], node["attrs"]
    if name in FUNCTION:
        return FUNCTION[name]
    norm, act = "BatchNorm" * ("batchnorm" in attrs), "Activation" * ("activation_type" in attrs)
    return (f"{'Fused' if norm or act else ''}Convolution{norm}{act}",)


def test_each_operator_becomes_its_function_in_order_and_all_is_released(program: Path) -> None:
    seen = set()
    for name, graph in graphs():
        done = called(program, graph)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        made, run = done.stdout.split("-- run\n")
        kernels = [node for node in graph["nodes"] if node["op"] == "kernel"]
        seen |= {node["name"] for node in kernels}
        operators = re.findall(r"^clCreateMLOp(\w+?)(?:Forward)?QCOM$", made, re.M)
        assert len(operators) == len(kernels), name
        assert all(op in expected(node) for op, node in zip(operators, kernels, strict=True)), f"{name}: {operators}"
        steps, _ = run.split("-- end\n")
        inputs, heads = sum(node["op"] == "input" for node in graph["nodes"]), len(graph["heads"])
        copy, enqueue = "clEnqueueCopyMLTensorDataQCOM", "clEnqueueMLOpQCOM"
        assert steps.split() == [copy] * inputs + [enqueue] * len(kernels) + [copy] * heads, name
        count = Counter(done.stdout.split())
        assert count["clReleaseMLOpQCOM"] == len(kernels) and count["clCreateBuffer"] == count["clReleaseMemObject"], (
            name
        )
        assert count["clCreateMLTensorQCOM"] == count["clReleaseMLTensorQCOM"], name
        for what in ("MLTuningCache", "MLTensorMemoryDescriptorSet"):
            assert count[f"clCreate{what}QCOM"] == count[f"clRelease{what}QCOM"] == 1, name
    rows = set(re.findall(r'^    \{"([\w.]+)",', (NATIVE / "clml_runtime.cpp").read_text(), re.M))
    assert len(rows) > 20 and seen <= rows, f"operators that no row of the runtime has: {sorted(seen - rows)}"


def test_an_operator_that_the_runtime_has_not_is_named(program: Path) -> None:
    _, graph = graphs()[0]
    next(node for node in graph["nodes"] if node["op"] == "kernel")["name"] = "nn.other"
    assert "there is no kernel nn.other" in called(program, graph).stderr


@pytest.mark.parametrize(
    ("version", "refusal", "message"),
    [(7, 0, "built with an SDK of version 9, the driver has 7"), (9, -5, "a tuning cache is refused: error -5")],
)
def test_what_driver_and_library_refuse_is_told(program: Path, version: int, refusal: int, message: str) -> None:
    done = called(program, graphs()[0][1], version, refusal)
    assert done.returncode == 1 and message in done.stderr
