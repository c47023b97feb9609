"""Build and check everything a release consists of: the compiler, the runtime for each platform, the sources.

In: the checkout, zig (`pip install ziglang build auditwheel`). Out: files in `dist/`, each checked: the native library
needs no C library newer than that of manylinux_2_17 or musllinux_1_2, a wheel of the runtime holds nothing of the
compiler and stays below 3 MB. Invariant: each file of the package is in one wheel: `armillary-runtime`, which a board
needs to load and run packages (numpy only), or `armillary`, which depends on that of its version; so either can be
removed or renewed. A file that fails a check is removed. Run: `python tools/release.py [--only TAG]`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from armillary.runtime.build_native import build_libraries

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 17)
_GNU, _MUSL = f"manylinux_{GLIBC[0]}_{GLIBC[1]}", "musllinux_1_2"
PLATFORMS = {  # zig's name of the machine and its C library, by the tag of the wheel
    f"{_GNU}_x86_64": f"x86_64-linux-gnu.{GLIBC[0]}.{GLIBC[1]}",
    f"{_GNU}_aarch64": f"aarch64-linux-gnu.{GLIBC[0]}.{GLIBC[1]}",
    f"{_GNU}_armv7l": f"arm-linux-gnueabihf.{GLIBC[0]}.{GLIBC[1]}",
    f"{_MUSL}_x86_64": "x86_64-linux-musl",
    f"{_MUSL}_aarch64": "aarch64-linux-musl",
}
LARGEST_RUNTIME = 3_000_000
RUNTIME = re.compile(
    r"armillary/((__init__|errors|session|wiring)\.py|py\.typed|(artifact|base|runtime|rpc|exec)/.*"
    r"|contrib/(__init__|graph_executor|pipeline_executor|utils)\.py|text/(__init__|cursor|extent)\.py)$"
)
_SUMMARY = "Loads and runs networks that Armillary compiled; the compiler is the package armillary"
_VERSIONS = re.compile(rb"GLIBC_(\d+)\.(\d+)")


def main() -> int:
    """Build what the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PLATFORMS, help="one platform instead of all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wheels: list[Path] = []
    with tempfile.TemporaryDirectory() as folder:
        first, *others = (options.only,) if options.only else PLATFORMS
        whole = build_wheel(first, Path(folder))
        wheels.append(runtime_wheel(whole, options.out))
        wheels += [runtime_wheel(with_library(whole, platform, Path(folder)), options.out) for platform in others]
        wheels.append(compiler_wheel(whole, options.out))
    for wheel in wheels:
        problems = check_wheel(wheel)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {'; '.join(problems) or 'checked'}")
        if problems:
            wheel.unlink()
            return 1
    if not options.only:
        subprocess.run([sys.executable, "-m", "build", "--sdist", "--outdir", str(options.out), str(ROOT)], check=True)
    return 0


def _zig(platform: str) -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc", "-target", PLATFORMS[platform]]


def build_wheel(platform: str, out: Path) -> Path:
    """The whole package for a platform in one wheel; its native library is built by zig."""
    environment = {**os.environ, "ARMILLARY_CC": " ".join(_zig(platform)), "ARMILLARY_WHEEL_PLATFORM": platform}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(command, env=environment, check=True)
    (wheel,) = out.glob(f"armillary-*-py3-none-{platform}.whl")
    return wheel


def with_library(wheel: Path, platform: str, out: Path) -> Path:
    """The same package for another platform: a wheel with the native library, the one file that differs, built anew."""
    name, version, _ = wheel.name.split("-", 2)
    libraries = {path.name: path.read_bytes() for path in build_libraries(_zig(platform), out / platform)}
    info, folder = f"{name}-{version}.dist-info", "armillary/runtime/lib/"
    with zipfile.ZipFile(wheel) as source:
        files = {n: libraries.get(n.removeprefix(folder), source.read(n)) for n in source.namelist()}
    tags = re.sub(rb"(?m)^Tag: .*$", f"Tag: py3-none-{platform}".encode(), files[f"{info}/WHEEL"])
    del files[f"{info}/RECORD"]
    return _write({**files, f"{info}/WHEEL": tags}, info, out / f"{name}-{version}-py3-none-{platform}.whl")


def runtime_wheel(wheel: Path, out: Path) -> Path:
    """The part of a wheel that a device needs, as a distribution of its own."""
    name, version, rest = wheel.name.split("-", 2)
    info, old = f"armillary_runtime-{version}.dist-info", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as source:
        files = {n: source.read(n) for n in source.namelist() if RUNTIME.match(n)}
        for part in ("WHEEL", "licenses/LICENSE"):
            files[f"{info}/{part}"] = source.read(f"{old}/{part}")
    files[f"{info}/METADATA"] = _metadata(version)
    return _write(files, info, out / f"armillary_runtime-{version}-{rest}")


def compiler_wheel(wheel: Path, out: Path) -> Path:
    """The rest of it, for any machine, which depends on the runtime of its version."""
    name, version, _ = wheel.name.split("-", 2)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as source:
        names = [n for n in source.namelist() if not RUNTIME.match(n) and n != f"{info}/RECORD"]
        files = {n: source.read(n) for n in names}
    head, gap, text = files[f"{info}/METADATA"].partition(b"\n\n")
    files[f"{info}/METADATA"] = head + f"\nRequires-Dist: armillary-runtime=={version}".encode() + gap + text
    lines = files[f"{info}/WHEEL"].decode().splitlines()
    lines_left = [line for line in lines if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    files[f"{info}/WHEEL"] = "\n".join([*lines_left, "Root-Is-Purelib: true", "Tag: py3-none-any", ""]).encode()
    return _write(files, info, out / f"{name}-{version}-py3-none-any.whl")


def _write(files: dict[str, bytes], info: str, wheel: Path) -> Path:
    rows = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as target:
        for path, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(data)}")
            target.writestr(path, data)
        target.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return wheel


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
        wanted = int(wheel.name.startswith("armillary_runtime"))
        if len(libraries) != wanted:
            problems.append(f"{len(libraries)} native libraries, wanted {wanted}")
        for library in libraries:
            needed = max(((int(a), int(b)) for a, b in _VERSIONS.findall(archive.read(library))), default=(0, 0))
            if needed > ((0, 0) if _MUSL in wheel.name else GLIBC):
                problems.append(f"{library} needs glibc {needed[0]}.{needed[1]}")
    if wheel.name.startswith("armillary_runtime") and wheel.stat().st_size > LARGEST_RUNTIME:
        problems.append(f"{wheel.stat().st_size} bytes, at most {LARGEST_RUNTIME}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
