"""Names of `armillary` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.errors import ArmillaryError as ArmillaryError
from armillary.base.dtype import DType as DataType
from armillary.base.dtype import DataTypeCode as DataTypeCode
from armillary.ir import IRModule as IRModule
from armillary.session import InferenceSession as InferenceSession
from armillary.session import OrtValue as OrtValue
from armillary.session import RunOptions as RunOptions
from armillary.session import SessionOptions as SessionOptions
from armillary.errors import ArmillaryError as TVMError
from armillary import _ffi as _ffi
from armillary import arith as arith
from armillary import artifact as artifact
from armillary import auto_scheduler as auto_scheduler
from armillary import autotvm as autotvm
from armillary import backend as backend
from armillary import backends as backends
from armillary import base as base
from armillary.driver.te_build import build as build
from armillary.runtime.device import cl as cl
from armillary import cli as cli
from armillary import codegen as codegen
from armillary import compute as compute
from armillary.base import config as config
from armillary.runtime import container as container
from armillary import contrib as contrib
from armillary.registry import convert as convert
from armillary.runtime.device import cpu as cpu
from armillary.runtime.device import cuda as cuda
from armillary.runtime.device import device as device
from armillary import driver as driver
from armillary.base import dtype as dtype
from armillary import error as error
from armillary import errors as errors
from armillary import exec as exec
from armillary import frontend as frontend
from armillary.registry import get_global_func as get_global_func
from armillary.runtime.device import cuda as gpu
from armillary import instrument as instrument
from armillary import ir as ir
from armillary.driver.te_build import lower as lower
from armillary import meta_schedule as meta_schedule
from armillary.runtime.device import metal as metal
from armillary.runtime import ndarray as nd
from armillary.base import node as node
from armillary.runtime.device import cl as opencl
from armillary import ops as ops
from armillary.driver.quantization.network import quantize as quantize
from armillary.driver.quantization.weights import quantize_weights as quantize_weights
from armillary.registry import register_func as register_func
from armillary import relay as relay
from armillary.runtime.device import rocm as rocm
from armillary import rpc as rpc
from armillary import runtime as runtime
from armillary import script as script
from armillary import support as support
from armillary import target as target
from armillary import te as te
from armillary import testing as testing
from armillary import tir as tir
from armillary import topi as topi
from armillary import transform as transform
from armillary.runtime.device import vulkan as vulkan

__all__ = [
    "ArmillaryError",
    "DataType",
    "DataTypeCode",
    "IRModule",
    "InferenceSession",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "TVMError",
    "arith",
    "artifact",
    "auto_scheduler",
    "autotvm",
    "backend",
    "backends",
    "base",
    "build",
    "cl",
    "cli",
    "codegen",
    "compute",
    "config",
    "container",
    "contrib",
    "convert",
    "cpu",
    "cuda",
    "device",
    "driver",
    "dtype",
    "error",
    "errors",
    "exec",
    "frontend",
    "get_global_func",
    "gpu",
    "instrument",
    "ir",
    "lower",
    "meta_schedule",
    "metal",
    "nd",
    "node",
    "opencl",
    "ops",
    "quantize",
    "quantize_weights",
    "register_func",
    "relay",
    "rocm",
    "rpc",
    "runtime",
    "script",
    "support",
    "target",
    "te",
    "testing",
    "tir",
    "topi",
    "transform",
    "vulkan",
]

__version__: str
