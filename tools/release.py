"""Build and check everything a release consists of: wheels for x86-64 and AArch64, the runtime alone, the sources.

In: the checkout, zig (`pip install ziglang build auditwheel`). Out: files in `dist/`, each checked: the native library
needs no C library newer than that of manylinux_2_17, a wheel of the runtime holds nothing of the compiler and stays
below 3 MB. Invariant: a file that fails a check is removed. Run: `python tools/release.py [--only x86_64]`.
The runtime alone, `armillary-runtime`, is what a board needs to load and run packages; it needs numpy only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 17)
PLATFORMS = ("x86_64", "aarch64")
LARGEST_RUNTIME = 3_000_000
RUNTIME = re.compile(
    r"armillary/((__init__|errors|session)\.py|py\.typed|(artifact|base|runtime|rpc|exec)/.*"
    r"|contrib/(__init__|graph_executor|pipeline_executor|utils)\.py)$"
)
_SUMMARY = "Loads and runs networks that Armillary compiled; the compiler is the package armillary"
_VERSIONS = re.compile(rb"GLIBC_(\d+)\.(\d+)")


def main() -> int:
    """Build what the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PLATFORMS, help="one platform instead of all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for machine in (given.only,) if given.only else PLATFORMS:
        wheel = build_wheel(machine, given.out)
        for made in (wheel, runtime_wheel(wheel, given.out)):
            problems = check_wheel(made)
            print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB, {'; '.join(problems) or 'checked'}")
            if problems:
                made.unlink()
                return 1
    return 0


def build_wheel(machine: str, out: Path) -> Path:
    """The wheel of the compiler for a machine; its native library is built by zig."""
    platform = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    environment = {**os.environ, "ARMILLARY_CC": compiler, "ARMILLARY_WHEEL_PLATFORM": platform}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(command, env=environment, check=True)
    (wheel,) = out.glob(f"armillary-*-py3-none-{platform}.whl")
    return wheel


def runtime_wheel(wheel: Path, out: Path) -> Path:
    """The part of a wheel that a device needs, as a distribution of its own."""
    name, version, rest = wheel.name.split("-", 2)
    info = f"armillary_runtime-{version}.dist-info"
    made = out / f"armillary_runtime-{version}-{rest}"
    rows = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        kept = {n: source.read(n) for n in source.namelist() if RUNTIME.match(n)}
        old = f"{name}-{version}.dist-info"
        kept[f"{info}/WHEEL"] = source.read(f"{old}/WHEEL")
        kept[f"{info}/licenses/LICENSE"] = source.read(f"{old}/licenses/LICENSE")
        kept[f"{info}/METADATA"] = _metadata(version)
        for path, data in kept.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(data)}")
            target.writestr(path, data)
        target.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return made


def _metadata(version: str) -> bytes:
    lines = (
        "Metadata-Version: 2.4",
        "Name: armillary-runtime",
        f"Version: {version}",
        f"Summary: {_SUMMARY}",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Requires-Python: >=3.10",
        "Requires-Dist: numpy>=1.26",
    )
    return ("\n".join(lines) + "\n").encode()


def check_wheel(wheel: Path) -> list[str]:
    """What is wrong with a wheel."""
    problems = []
    with zipfile.ZipFile(wheel) as archive:
        libraries = [n for n in archive.namelist() if n.endswith(".so")]
        if len(libraries) != 1:
            problems.append(f"{len(libraries)} native libraries, wanted one")
        for library in libraries:
            needed = max(((int(a), int(b)) for a, b in _VERSIONS.findall(archive.read(library))), default=(0, 0))
            if needed > GLIBC:
                problems.append(f"{library} needs glibc {needed[0]}.{needed[1]}")
    if wheel.name.startswith("armillary_runtime") and wheel.stat().st_size > LARGEST_RUNTIME:
        problems.append(f"{wheel.stat().st_size} bytes, at most {LARGEST_RUNTIME}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
