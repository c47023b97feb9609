"""Every environment variable the package reads, in one table.

In: the process environment. Out: typed values through `setting(NAME)`. Invariant: no other module reads the
environment; an unusable value is a ConfigError that names the variable, the value and what is accepted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armillary.base.record import record
from armillary.errors import ConfigError


@record(slots=True)
class Setting:
    """One variable: how its text is read, its default, what it does, and the default in words."""

    name: str
    parse: Callable[[str], Any]
    default: Callable[[], Any]
    doc: str
    shown: str


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("must be a whole number that is at least 1")
    return int(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError("must be a number of seconds that is at least 0")
    return value


def _flag(text: str) -> bool:
    if text.lower() not in ("0", "1", "true", "false", "yes", "no", ""):
        raise ValueError("must be 0 or 1")
    return text.lower() in ("1", "true", "yes")


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _base_folder(variable: str, default: str) -> Path:
    """A folder of the XDG Base Directory specification, by which a path that is not absolute counts as none."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default


def _cache_home() -> Path:
    try:
        return _base_folder("XDG_CACHE_HOME", ".cache") / "armillary"
    except RuntimeError:  # no HOME, and the system does not know the user
        message = "there is no home folder to keep compiled kernels in"
        raise ConfigError(message, hint="set ARMILLARY_CACHE_DIR to a folder") from None


def _config_home() -> Path:
    try:
        return _base_folder("XDG_CONFIG_HOME", ".config") / "armillary"
    except RuntimeError:
        raise ConfigError("there is no home folder", hint="set ARMILLARY_CONFIG_DIR to a folder") from None


_CPUS = "the CPUs this process may use"
_TABLE = (
    Setting("ARMILLARY_NUM_THREADS", _count, _cpus, "threads an inference uses", _CPUS),
    Setting("ARMILLARY_BIND_THREADS", _flag, lambda: False, "1: pin each worker thread to a CPU", "0"),
    Setting("ARMILLARY_CACHE_DIR", Path, _cache_home, "where compiled kernels are kept", "`~/.cache/armillary`"),
    Setting("ARMILLARY_CACHE", _flag, lambda: True, "0: neither read nor write the kernel cache", "1"),
    Setting("ARMILLARY_COMPILE_JOBS", _count, _cpus, "processes that compile kernels at the same time", _CPUS),
    Setting("ARMILLARY_COMPILE_TIMEOUT", _count, lambda: 300, "seconds one kernel may take to compile", "300"),
    Setting("ARMILLARY_DEVICE_TIMEOUT", _seconds, lambda: -1.0, "seconds that kernels may take; 0: any time", "300"),
    Setting("ARMILLARY_CC", str, lambda: "", "C compiler to link and to compile C with", "cc, gcc, clang or zig"),
    Setting("ARMILLARY_HOST_CPU", str, lambda: "", "compile as if this machine were this CPU, which it must be", "it"),
    Setting("ARMILLARY_EXTERNAL_PATH", str, lambda: "", "folders of libraries for offloaded functions", "none"),
    Setting("ARMILLARY_CONFIG_DIR", Path, _config_home, "where the RPC secret is kept", "`~/.config/armillary`"),
    Setting("ARMILLARY_RPC_SECRET", str, lambda: "", "what RPC trackers, servers and clients share", "a file"),
    Setting("ARMILLARY_RPC_INSECURE", _flag, lambda: False, "1: RPC clients accept peers that ask for no secret", "0"),
    Setting("ARMILLARY_RPC_TLS", _flag, lambda: False, "1: RPC clients connect to trackers and proxies by TLS", "0"),
    Setting("ARMILLARY_TRACKER_HOST", str, lambda: "127.0.0.1", "where RPC queries look for a tracker", "127.0.0.1"),
    Setting("ARMILLARY_TRACKER_PORT", _count, lambda: 9190, "the port of that tracker", "9190"),
    Setting("ARMILLARY_SERVE_TOKEN", str, lambda: "", "what clients of `armc serve` have to show", "none"),
    Setting("ARMILLARY_ACL", str, lambda: "", "Arm Compute Library: its folder, ON or OFF", "ON"),
    Setting("ADRENO_OPENCL", str, lambda: "", "folder of the SDK of OpenCLML, to build its runtime", "none"),
    Setting("ARMILLARY_INSTALLED_RECORDS", _flag, lambda: True, "0: builds use no records of installed packages", "1"),
    Setting("ARMILLARY_EMBED_KERNELS", _flag, lambda: True, "0: OpenCL kernels come from `./cl_kernels` alone", "1"),
    Setting("ARMILLARY_COMPUTE_DEBUG", _flag, lambda: False, "1: also verify kernels after each loop pass", "0"),
    Setting("ARMILLARY_COMPUTE_ASSERTS", _flag, lambda: False, "1: compute kernels check each address", "0"),
    Setting("ARMILLARY_COMPUTE_LOGGING", _flag, lambda: False, "1: log configure and schedule of compute", "0"),
    Setting("CI", _flag, lambda: False, "1: tests must not skip for a missing tool", "0"),
)
SETTINGS = {row.name: row for row in _TABLE}


def setting(name: str) -> Any:  # Any: the type is the row's
    """The value of a variable of the table, read afresh."""
    row = SETTINGS[name]
    text = os.environ.get(name)
    if text is None or text == "":
        return row.default()
    try:
        return row.parse(text)
    except ValueError as error:
        raise ConfigError(f"environment variable {name}={text!r}: {error}", hint=row.doc) from None
