"""Finding, loading and describing the native library.

In: nothing, or the settings. Out: `native()`, the library with every prototype declared; `check(status, buffer)`.
Invariant: there is one library per process, and it was built from the sources next to it: in the package by the
installer, or (in a source tree) in the cache folder at first use, where nobody else may write. A failed call becomes
an ArmillaryError.
"""

from __future__ import annotations

import ctypes
import os
import stat
import warnings
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

from armillary.base.c_compiler import need_compiler
from armillary.base.config import setting
from armillary.base.files import (
    is_private,
    is_private_folder,
    make_private_folder,
    remove_irregular,
    scratch_folder,
)
from armillary.base.once import once
from armillary.errors import ArmillaryError, ArtifactError, ExecutionError, TargetError
from armillary.runtime.build_native import INSTALLED, RUNTIME_DIR, build_library, library_name

ERROR_SIZE = 1024


class CDevice(ctypes.Structure):
    """DLPack's DLDevice."""

    _fields_ = (("type", c_int32), ("id", c_int32))


class CDataType(ctypes.Structure):
    """DLPack's DLDataType."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class CTensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", c_void_p),
        ("device", CDevice),
        ("ndim", c_int32),
        ("dtype", CDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Resolver = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_char_p)
Packed = ctypes.CFUNCTYPE(c_int32, c_char_p, c_char_p, POINTER(c_int64), POINTER(c_int64), c_void_p, c_size_t)


class CSpan(ctypes.Structure):
    """A stretch of time that a thread spent in a phase of a node's kernel; seconds since the run began."""

    _fields_ = (
        ("begin", c_double),
        ("end", c_double),
        ("node", c_int32),
        ("phase", c_int32),
        ("thread", c_int32),
        ("rest", c_int32),
    )


_ERR = (c_void_p, c_size_t)
_T = POINTER(CTensor)
_OUT = POINTER(c_void_p)
_PROTOTYPES: tuple[tuple[str, object, tuple[object, ...]], ...] = (
    ("arm_abi_version", c_int, ()),
    ("arm_packed_set", None, (Packed,)),
    ("arm_device_open", c_int, (CDevice, *_ERR)),
    ("arm_device_describe", c_int, (CDevice, c_void_p, c_size_t, *_ERR)),
    ("arm_device_allocate", c_void_p, (CDevice, c_size_t, *_ERR)),
    ("arm_device_release", None, (CDevice, c_void_p)),
    ("arm_device_synchronize", c_int, (CDevice, *_ERR)),
    ("arm_device_time", c_int, (CDevice, c_int, POINTER(c_double), *_ERR)),
    ("arm_opencl_keep_programs", c_int, (c_char_p,)),
    ("arm_opencl_limit_time", None, (c_double,)),
    ("arm_tensor_copy", c_int, (_T, _T, *_ERR)),
    ("arm_pool_create", c_void_p, (c_int, c_int, *_ERR)),
    ("arm_pool_configure", c_int, (c_void_p, c_int, c_int, *_ERR)),
    ("arm_pool_threads", c_int, (c_void_p,)),
    ("arm_pool_enter", None, (c_void_p,)),
    ("arm_pool_leave", None, (c_void_p,)),
    ("arm_pool_destroy", None, (c_void_p,)),
    ("arm_pool_run", c_int32, (c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_int)),
    ("arm_pool_run_steps", c_int32, (c_void_p, c_void_p, c_int, c_int, c_void_p)),
    ("arm_module_open", c_int, (c_char_p, _OUT, *_ERR)),
    ("arm_module_system", c_int, (c_char_p, _OUT, *_ERR)),
    ("arm_system_network", c_char_p, (c_int,)),
    ("arm_module_create", c_int, (c_char_p, c_size_t, Resolver, c_void_p, _OUT, *_ERR)),
    ("arm_module_release", None, (c_void_p,)),
    ("arm_module_set_folder", c_int, (c_void_p, c_char_p, *_ERR)),
    ("arm_external_path", c_int, (c_char_p, *_ERR)),
    ("arm_module_find", c_int, (c_void_p, c_char_p)),
    ("arm_module_descriptor", c_void_p, (c_void_p, POINTER(c_size_t))),
    ("arm_module_graph_json", c_void_p, (c_void_p, POINTER(c_size_t))),
    ("arm_module_params", c_void_p, (c_void_p, POINTER(c_size_t))),
    ("arm_module_check_params", c_int, (c_void_p, *_ERR)),
    ("arm_call_create", c_int, (c_void_p, c_int, _T, c_int, POINTER(c_int64), c_int, c_void_p, _OUT, *_ERR)),
    ("arm_call_run", c_int, (c_void_p, *_ERR)),
    ("arm_call_time", c_int, (c_void_p, c_int64, POINTER(c_double), *_ERR)),
    ("arm_call_destroy", None, (c_void_p,)),
    ("arm_graph_create_over", c_int, (c_char_p, c_size_t, c_void_p, POINTER(CDevice), c_int, c_void_p, _OUT, *_ERR)),
    ("arm_graph_destroy", None, (c_void_p,)),
    ("arm_graph_num_inputs", c_int, (c_void_p,)),
    ("arm_graph_num_outputs", c_int, (c_void_p,)),
    ("arm_graph_num_nodes", c_int, (c_void_p,)),
    ("arm_graph_memory", c_size_t, (c_void_p,)),
    ("arm_graph_input_name", c_char_p, (c_void_p, c_int)),
    ("arm_graph_input_index", c_int, (c_void_p, c_char_p)),
    ("arm_graph_node_name", c_char_p, (c_void_p, c_int)),
    ("arm_graph_node_function", c_char_p, (c_void_p, c_int)),
    ("arm_graph_node_owner", c_int, (c_void_p, c_int)),
    ("arm_graph_node_outputs", c_int, (c_void_p, c_int)),
    ("arm_graph_input", c_int, (c_void_p, c_int, _T, *_ERR)),
    ("arm_graph_input_info", c_int, (c_void_p, c_int, _T, *_ERR)),
    ("arm_graph_output", c_int, (c_void_p, c_int, _T, *_ERR)),
    ("arm_graph_node_output", c_int, (c_void_p, c_int, c_int, _T, *_ERR)),
    ("arm_graph_set_input", c_int, (c_void_p, c_int, _T, *_ERR)),
    ("arm_graph_set_input_zero_copy", c_int, (c_void_p, c_int, _T, *_ERR)),
    ("arm_graph_set_output_zero_copy", c_int, (c_void_p, c_int, _T, *_ERR)),
    ("arm_graph_load_params", c_int, (c_void_p, c_void_p, c_size_t, POINTER(c_int), *_ERR)),
    (
        "arm_graph_read_params",
        c_int,
        (c_void_p, c_int, c_int64, c_int64, POINTER(c_int), POINTER(ctypes.c_uint32), *_ERR),
    ),
    ("arm_graph_load_embedded", c_int, (c_void_p, POINTER(c_int), *_ERR)),
    ("arm_graph_publish", c_void_p, (c_void_p,)),
    ("arm_graph_adopt", c_int, (c_void_p, c_void_p, *_ERR)),
    ("arm_weights_release", None, (c_void_p,)),
    ("arm_graph_load", c_int, (c_void_p, *_ERR)),
    ("arm_graph_input_stored", c_int, (c_void_p, c_int)),
    ("arm_graph_input_released", c_int, (c_void_p, c_int)),
    ("arm_graph_input_is_set", c_int, (c_void_p, c_int)),
    ("arm_graph_input_is_plain", c_int, (c_void_p, c_int)),
    ("arm_crc32", ctypes.c_uint32, (ctypes.c_uint32, c_void_p, c_size_t)),
    ("arm_graph_node_is_load", c_int, (c_void_p, c_int)),
    ("arm_graph_num_sizes", c_int, (c_void_p,)),
    ("arm_graph_size_name", c_char_p, (c_void_p, c_int)),
    ("arm_graph_num_variants", c_int, (c_void_p,)),
    ("arm_graph_variant", c_int, (c_void_p,)),
    ("arm_graph_set_variant", c_int, (c_void_p, c_int, *_ERR)),
    ("arm_graph_pick", c_int, (c_void_p, c_char_p, _T, *_ERR)),
    ("arm_graph_input_used", c_int, (c_void_p, c_int)),
    ("arm_graph_input_is_state", c_int, (c_void_p, c_int)),
    ("arm_graph_reset_states", c_int, (c_void_p, *_ERR)),
    ("arm_graph_run", c_int, (c_void_p, *_ERR)),
    ("arm_graph_run_range", c_int, (c_void_p, c_int, c_int, POINTER(c_double), *_ERR)),
    ("arm_graph_trace", c_int, (c_void_p, POINTER(CSpan), c_int64, POINTER(c_int64), POINTER(c_double), *_ERR)),
    ("arm_graph_time", c_int, (c_void_p, c_int64, POINTER(c_double), *_ERR)),
)


@once
def native() -> ctypes.CDLL:
    """The loaded library; TargetError if it is neither installed nor can be built."""
    library = _loaded()
    for name, result, arguments in _PROTOTYPES:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = list(arguments)
    library.arm_opencl_keep_programs(os.fsencode(_program_folder()))
    library.arm_opencl_limit_time(setting("ARMILLARY_DEVICE_TIMEOUT"))
    return library


def _program_folder() -> str:
    """Where built OpenCL programs are kept from process to process; "" where no folder can be made."""
    try:
        return str(make_private_folder(setting("ARMILLARY_CACHE_DIR") / "opencl"))
    except ArtifactError:
        return ""


def _loaded() -> ctypes.CDLL:
    """The library of the package; else that of the cache folder, built if there is none that is this user's alone."""
    if INSTALLED.exists():
        return ctypes.CDLL(str(INSTALLED))
    name = library_name()
    installed = RUNTIME_DIR / name
    if installed.exists():
        return ctypes.CDLL(str(installed))
    cached: Path = setting("ARMILLARY_CACHE_DIR") / "native" / name
    if _is_usable(cached):
        return ctypes.CDLL(str(cached))
    try:
        if not os.path.exists(cached.parent) or is_private_folder(cached.parent):
            return _built(make_private_folder(cached.parent) / name)
        message = (
            f"the native runtime is built anew: {cached.parent} is owned or can be written by somebody else; chmod go-w"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        with scratch_folder() as folder:
            return _built(folder / name)
    except TargetError as error:
        raise TargetError(f"the native runtime cannot be built: {error.message}", hint=error.hint) from None
    except ArtifactError as error:
        message = f"the native runtime, built at the first use of a source tree, has no place: {error.message}"
        raise TargetError(message, span=error.span, hint="set ARMILLARY_CACHE_DIR to a folder") from None


def _is_usable(library: Path) -> bool:
    """Whether a library of the cache is a regular file that nobody else can have written."""
    try:
        status = os.lstat(library)
    except OSError:  # a folder that may not be looked into has none
        return False
    return is_private_folder(library.parent) and stat.S_ISREG(status.st_mode) and is_private(status)


def _built(output: Path) -> ctypes.CDLL:
    remove_irregular(output)
    build_library(need_compiler(setting("ARMILLARY_CC")), output)
    os.chmod(output, 0o700)
    return ctypes.CDLL(str(output))


class ErrorText:
    """A reusable buffer for error texts; `*buffer.args` are the last two arguments of a native call."""

    __slots__ = ("_buffer", "args")

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(ERROR_SIZE)
        self.args = (ctypes.addressof(self._buffer), ERROR_SIZE)

    def check(self, status: int, kind: type[ArmillaryError] = ExecutionError, hint: str = "") -> None:
        """Raise `kind` with the text if `status` is not 0."""
        if status != 0:
            raise kind(self._buffer.value.decode("utf-8", "replace"), hint=hint)

    def text(self) -> str:
        """The last text written."""
        return self._buffer.value.decode("utf-8", "replace")


class Handle:
    """A native object and how to let go of it; freed with the Python object."""

    __slots__ = ("__weakref__", "_free", "pointer")

    def __init__(self, pointer: int, free: Callable[[int], None]) -> None:
        self.pointer = pointer
        self._free = free

    def __del__(self) -> None:
        if self.pointer:
            self._free(self.pointer)
            self.pointer = 0
