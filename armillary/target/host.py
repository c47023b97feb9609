"""The machine we run on: LLVM's view of its CPU, and its caches.

In: nothing (LLVM's CPU detection and /sys). Out: triple, CPU name, features, cache sizes, cached for the process.
Invariant: features are what the processor reports, so they hold even where LLVM guesses the CPU's name wrong. LLVM is
asked in a process of its own, because it takes 50 MB, and its answer is kept in the cache folder, by what the system
says of the processor. ARMILLARY_HOST_CPU takes features away, never adds one: tests run as on a smaller processor.
"""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import llvmlite

from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.files import make_private_folder, read_private, write_private
from armillary.base.json_types import JsonObject
from armillary.base.lazy import similar
from armillary.errors import ArtifactError, TargetError
from armillary.target.cpu_table import AARCH64, X86

_PROBE = """
import json, llvmlite.binding as llvm
try:
    features = dict(llvm.get_host_cpu_features())
except RuntimeError:  # LLVM has no detection for this architecture
    features = {}
print(json.dumps({"triple": llvm.get_process_triple(), "cpu": llvm.get_host_cpu_name(), "features": features}))
"""
_TELLING = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "flags",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
)


_VECTORS = ("avx", "amx", "fma4", "gfni", "vaes", "vpclmul", "xop", "sve", "sme")  # how names of vector features begin


def triple() -> str:
    """LLVM's triple of this process."""
    return str(_facts()["triple"])


def cpu_name() -> str:
    """The CPU as LLVM names it; it may be a near relative, so rely on `features`."""
    return str(_facts()["cpu"])


def features() -> dict[str, bool]:
    """Every feature LLVM knows, and whether this processor has it; empty where LLVM cannot tell."""
    return dict(_facts()["features"])


@functools.cache
def _facts() -> JsonObject:  # JSON of the probe
    retained: Path | None = (
        setting("ARMILLARY_CACHE_DIR") / f"host-{_key()}.json" if setting("ARMILLARY_CACHE") else None
    )
    result = _read(retained)
    if result is None:
        result = _ask()
        _keep(retained, result)
    asked = setting("ARMILLARY_HOST_CPU")
    return restricted(result, asked) if asked else result


def restricted(facts: JsonObject, name: str) -> JsonObject:
    """What LLVM told of this machine, without the features that the CPU `name` lacks."""
    table = X86 if any(feature in facts["features"] for feature in X86["x86-64"].features) else AARCH64
    if name not in table:
        close = ", ".join(similar(name, table, 3, 0.5)) or ", ".join(sorted(table)[:8])
        raise TargetError(f"ARMILLARY_HOST_CPU={name}: there is no such CPU in the table", hint=f"for example {close}")
    wanted = table[name].features
    missing = sorted(feature for feature in wanted if not facts["features"].get(feature))
    if missing:
        message = f"ARMILLARY_HOST_CPU={name}: this processor, {facts['cpu']}, has no {', '.join(missing)}"
        raise TargetError(message, hint="take a CPU that it can stand for")
    known = frozenset(feature for row in table.values() for feature in row.features)

    def stays(feature: str) -> bool:
        return feature in wanted or not (feature in known or feature.startswith(_VECTORS))

    features = {feature: on and stays(feature) for feature, on in facts["features"].items()}
    return {**facts, "cpu": name, "features": features}


def _ask() -> JsonObject:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TargetError(f"LLVM cannot tell what CPU this is: {done.stderr[-500:].strip()}", hint="pass -mcpu=…")
    answer: JsonObject = json.loads(done.stdout)
    return answer


def _key() -> str:
    """Sixteen hex digits that change with the processor and with LLVM."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = [platform.processor()]
    message = sorted(line for line in lines if line.partition(":")[0].strip() in _TELLING or ":" not in line)
    return blake2b(repr((llvmlite.__version__, platform.machine(), message)).encode()).hexdigest()[:16]


def _read(path: Path | None) -> JsonObject | None:
    """A kept answer; a damaged one counts as none."""
    try:
        result = json.loads((path and read_private(path)) or b"null")
    except ValueError:
        return None
    is_whole = isinstance(result, dict) and set(result) == {"triple", "cpu", "features"}
    return result if is_whole else None


def _keep(path: Path | None, facts: Mapping[str, object]) -> None:
    if path is None:
        return
    try:
        write_private(make_private_folder(path.parent) / path.name, json.dumps(facts).encode())
    except ArtifactError:  # the kernel cache says so, once
        return


@functools.cache
def caches() -> dict[int, int]:
    """Bytes of the data caches by level, from /sys; empty where there is none."""
    result: dict[int, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind in ("Data", "Unified") and size.endswith("K"):
            result[int(level)] = int(size[:-1]) * 1024
    return result


def machine() -> str:
    """The architecture as the operating system names it."""
    return platform.machine()
