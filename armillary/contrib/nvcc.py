"""What scripts ask of NVIDIA's compiler before they choose a kernel; there is no code for CUDA here.

In: a target or a version. Out: versions as numbers; False for what its hardware would have. Invariant: nothing is
compiled: what would need it is refused by name. Kernels for such a GPU: target "opencl".
"""

from __future__ import annotations

from typing import NoReturn

from armillary.base.boundary import boundary
from armillary.errors import TargetError


def _refuse(what: str) -> NoReturn:
    raise TargetError(f"{what}: code for cuda is not there yet", hint='NVIDIA\'s GPUs run target "opencl"')


@boundary("parse_compute_version", arguments=True)
def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """ "7.5" -> (7, 5); TargetError for what is no version."""
    major, _, minor = str(compute_version).partition(".")
    if not (major.isdigit() and (minor or "0").isdigit()):
        raise TargetError(f"{compute_version!r} is no compute version", hint='such as "7.5"')
    return int(major), int(minor or 0)


@boundary("have_tensorcore", arguments=True)
def have_tensorcore(compute_version: str | None = None, target: object = None) -> bool:
    """Whether a GPU of this version has tensor cores; of this machine, for which no code is made: False."""
    return compute_version is not None and parse_compute_version(compute_version)[0] >= 7


@boundary("have_fp16", arguments=True)
def have_fp16(compute_version: str | None) -> bool:
    """Whether a GPU of this version computes in half; of this machine: False."""
    version = (0, 0) if compute_version is None else parse_compute_version(compute_version)
    return version == (5, 3) or version[0] >= 6


@boundary("have_int8", arguments=True)
def have_int8(compute_version: str | None) -> bool:
    """Whether a GPU of this version adds up products of four bytes; of this machine: False."""
    return compute_version is not None and parse_compute_version(compute_version) >= (6, 1)


def get_target_compute_version(target: object = None) -> NoReturn:
    """Refused: there is no GPU that is programmed by CUDA."""
    _refuse("get_target_compute_version")


def compile_cuda(code: str, *args: object, **options: object) -> NoReturn:
    """Refused: there is no compiler of CUDA."""
    _refuse("compile_cuda")
