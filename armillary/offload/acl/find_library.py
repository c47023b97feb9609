"""Where Arm Compute Library is: the places that are searched, in order, and the version that is found there.

In: `--library`, or the setting ARMILLARY_ACL: nothing or ON (the folder `acl` of the working folder, then where the
compiler looks), OFF, or a folder. Out: `Found`: folders of headers and libraries, and the version, "" where it cannot
be read. Invariant: in a folder, `.`, `lib` and `build` are searched, each with the sub-folder of the compiler's triple;
releases that hold one library per architecture need that one named. Compiling against it: build_runtime.py.
"""

from __future__ import annotations

import mmap
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from armillary.base.config import setting
from armillary.base.record import record
from armillary.errors import TargetError

KNOWN_VERSIONS = ("20.08", "21.08", "24.11")
INSTALL = (
    "Debian: dpkg --add-architecture arm64, apt-get install libarm-compute-dev:arm64; elsewhere a release of "
    "github.com/ARM-software/ComputeLibrary for arm64-v8a, unpacked, and ARMILLARY_ACL=<its folder>"
)
_FILES = ("libarm_compute.so", "libarm_compute-static.a", "libarm_compute_core.so", "libarm_compute_core-static.a")
_VERSION = re.compile(rb"arm_compute_version=v?([0-9.]+)")


@record
class Found:
    """Folders for the compiler, in order; none of them for a library that it finds by itself."""

    headers: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    version: str = ""


def find_library(place: str | Path, compiler: Sequence[str]) -> Found:
    """Search the places that `place`, or else ARMILLARY_ACL, stands for."""
    choice = str(place or setting("ARMILLARY_ACL"))
    if choice.upper() == "OFF":
        raise TargetError("Arm Compute Library is switched off: ARMILLARY_ACL is OFF", hint="set it to ON or a folder")
    if choice and choice.upper() != "ON":
        return _in_folder(Path(choice).expanduser(), _triple(compiler))
    own = Path("acl").resolve()
    return _in_folder(own, _triple(compiler)) if own.is_dir() else Found(version=_version(system_folders(compiler)))


def is_switched_off() -> bool:
    """Whether the user wants nothing of the library on this machine."""
    return str(setting("ARMILLARY_ACL")).upper() == "OFF"


def _in_folder(root: Path, triple: str) -> Found:
    if not root.is_dir():
        raise TargetError(f"Arm Compute Library: there is no folder {root}", hint="check ARMILLARY_ACL or --library")
    places = [root / inner / own for inner in (".", "lib", "build") for own in (".", triple)]
    libraries = [place.resolve() for place in places if any((place / name).exists() for name in _FILES)]
    if not libraries:
        raise TargetError(f"no libarm_compute in {root}, its lib or its build", hint=_choices(root) or INSTALL)
    above = [root, root / "include", root / "include" / triple, root.parent, root.parent / "include"]
    above += [root.parent.parent, root.parent.parent / "include"]
    headers = [place.resolve() for place in above if (place / "arm_compute").is_dir()]
    if not headers:
        raise TargetError(f"{root} has libarm_compute, but its headers (arm_compute/) are not there", hint=INSTALL)
    return Found((headers[0], headers[0] / "include"), tuple(dict.fromkeys(libraries)), _version(libraries))


def _choices(root: Path) -> str:
    """Say which folders a release has, one for each architecture."""
    folders = sorted({path.parent for name in _FILES for path in root.glob(f"lib/*/{name}")})
    return f"name one: --library {', '.join(map(str, folders))}" if folders else ""


def _triple(compiler: Sequence[str]) -> str:
    return _compiler_answer(compiler, "-dumpmachine") or "."


def system_folders(compiler: Sequence[str]) -> list[Path]:
    """The folders in which the compiler finds the library by itself."""
    paths = [_compiler_answer(compiler, f"-print-file-name={name}") for name in _FILES]
    return list(dict.fromkeys(Path(text).resolve().parent for text in paths if Path(text).is_absolute()))


def _compiler_answer(compiler: Sequence[str], option: str) -> str:
    try:
        done = subprocess.run([*compiler, option], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version(folders: Sequence[Path]) -> str:
    """What the library says of itself."""
    for path in (folder / name for folder in folders for name in _FILES):
        if path.is_file() and path.stat().st_size > 0:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                match = _VERSION.search(text)
                if match is not None:
                    return match[1].decode()
    return ""
