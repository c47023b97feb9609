"""Bring your own data types: a network in posits, whose arithmetic is a library of C.

    python examples/datatypes/own_types.py

In: `own_types.c`, compiled with this machine's C compiler. Out: sums of two vectors in a bfloat16 made by hand, and a
small convolutional network in posits of 32, 16 and 8 bits beside float32's. A type is a name and rules: which
function of C stands for which operation (`target.datatype`); kernels hold the bits as unsigned integers.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from armillary.target.datatype import (
    create_lower_func,
    create_min_lower_func,
    lower_call_pure_extern,
    lower_ite,
    register,
    register_min_func,
    register_op,
)

import armillary as tvm
from armillary import relay, te, topi

OPERATIONS = ("Add", "Sub", "Mul", "Div", "Max")


def load_library(folder: str) -> ctypes.CDLL:
    """The functions of C, found by kernels as RTLD_GLOBAL puts them where all of the process looks."""
    library = Path(folder) / "own_types.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-std=c11", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def register_brain() -> None:
    """`custom[brain]16`: a bfloat16 by hand."""
    register("brain", 130)
    register_op(create_lower_func({(32, 16): "FloatToBrain"}), "Cast", "llvm", "float", "brain")
    register_op(create_lower_func({(16, 32): "BrainToFloat"}), "Cast", "llvm", "brain", "float")
    for name in (*OPERATIONS, "Min"):
        register_op(create_lower_func({16: f"Brain{name}"}), name, "llvm", "brain")
    register_op(create_lower_func({16: "FloatToBrain"}), "FloatImm", "llvm", "brain")


def register_posits() -> None:
    """`custom[posites2]8`, `16` and `32`."""
    register("posites2", 131)
    sizes = (8, 16, 32)

    def rule(name: str) -> object:
        return create_lower_func({n: name.format(n) for n in sizes})

    register_op(create_lower_func({(32, n): f"FloatToPosit{n}es2" for n in sizes}), "Cast", "llvm", "float", "posites2")
    register_op(create_lower_func({(n, 32): f"Posit{n}es2ToFloat" for n in sizes}), "Cast", "llvm", "posites2", "float")
    register_op(create_lower_func({(32, n): f"IntToPosit{n}es2" for n in sizes}), "Cast", "llvm", "int", "posites2")
    for name in OPERATIONS:
        register_op(rule(f"Posit{{}}es2{name}"), name, "llvm", "posites2")
    register_op(rule("FloatToPosit{}es2"), "FloatImm", "llvm", "posites2")
    for name in ("sqrt", "exp", "tanh"):
        call = rule(f"Posit{{}}es2{name.capitalize()}")
        register_op(call, "Call", "llvm", "posites2", intrinsic_name=f"tir.{name}")
    register_op(lower_ite, "Call", "llvm", "posites2", intrinsic_name="tir.if_then_else")
    register_op(lower_call_pure_extern, "Call", "llvm", "posites2", intrinsic_name="tir.call_pure_extern")
    register_min_func(create_min_lower_func({n: f"MinPosit{n}es2" for n in sizes}, "posites2"), "posites2")


def sums(dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two vectors of float32, added in another type."""
    x, y = (te.placeholder(v.shape, name=n) for n, v in (("X", a), ("Y", b)))
    z = topi.cast(topi.cast(x, dtype) + topi.cast(y, dtype), "float32")
    function = tvm.build(te.create_schedule(z.op), [x, y, z], "llvm")
    out = tvm.nd.empty(a.shape)
    function(tvm.nd.array(a), tvm.nd.array(b), out)
    return out.numpy()


def network() -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    """Convolution, normalisation, pooling, a dense layer, softmax; its parameters."""
    random = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "gamma": (8,), "beta": (8,), "mean": (8,), "var": (8,), "d": (10, 8 * 16)}
    params = {k: (random.uniform(0.1, 1, s) if k == "var" else random.normal(0, 0.3, s)) for k, s in shapes.items()}
    v = {k: relay.var(k, shape=s) for k, s in shapes.items()}
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.conv2d(x, v["w"], padding=(1, 1), channels=8, kernel_size=(3, 3))
    y = relay.nn.relu(relay.nn.batch_norm(y, v["gamma"], v["beta"], v["mean"], v["var"])[0])
    y = relay.nn.batch_flatten(relay.nn.max_pool2d(y, (2, 2), strides=(2, 2)))
    y = relay.nn.softmax(relay.nn.dense(y, v["d"]))
    function = relay.Function([x, *v.values()], y)
    return tvm.IRModule.from_expr(function), {k: p.astype("float32") for k, p in params.items()}


def converted(value: np.ndarray | tvm.nd.NDArray, dtype: str) -> tvm.nd.NDArray:
    """An array in another type, by a kernel that casts."""
    held = value if isinstance(value, tvm.nd.NDArray) else tvm.nd.array(value)
    x = relay.var("x", shape=held.shape, dtype=str(held.dtype))
    cast = tvm.IRModule.from_expr(relay.Function([x], x.astype(dtype)))
    return relay.create_executor("graph", cast).evaluate()(held)


def run(module: tvm.IRModule, params: dict[str, np.ndarray], x: np.ndarray, dtype: str) -> np.ndarray:
    """The network in another type, from float32 and back."""
    changed = relay.transform.InferType()(relay.frontend.ChangeDatatype("float32", dtype)(module))
    values = {k: converted(v, dtype) for k, v in params.items()}
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        result = relay.create_executor("graph", changed).evaluate()(converted(x, dtype), **values)
    return converted(result, "float32").numpy()


def main() -> dict[str, float]:
    """Prints, and gives, how far each type is from float32."""
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        load_library(folder)
        register_brain()
        register_posits()
        a, b = np.random.default_rng(1).normal(size=(2, 1000)).astype("float32")
        for dtype in ("custom[brain]16", "custom[posites2]32"):
            errors[dtype] = float(np.abs(sums(dtype, a, b) - (a + b)).max())
            print(f"a + b in {dtype}: {errors[dtype]:.2e} away from float32")
        module, params = network()
        x = np.random.default_rng(2).normal(size=(1, 3, 8, 8)).astype("float32")
        wanted = relay.create_executor("graph", module).evaluate()(x, **params).numpy()
        for bits in (32, 16, 8):
            dtype = f"custom[posites2]{bits}"
            errors[f"network {bits}"] = float(np.abs(run(module, params, x, dtype) - wanted).max())
            print(f"the network in {dtype}: {errors[f'network {bits}']:.2e} away from float32")
    return errors


if __name__ == "__main__":
    main()
