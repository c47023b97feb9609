"""The build backend: setuptools, plus steps that compile the native runtime and the compute library's kernels.

In: a PEP 517 front end. Out: wheels (regular and editable) that hold the C sources and a library built from them;
regular ones hold kernels for the usual processors too (`armillary/compute/ahead/pack.py`). Invariant: with no C
compiler on the machine, ziglang is asked for as a build requirement, so pip alone is enough.
`setup.py` wires the commands below; `armillary/runtime/build_native.py` does the compiling. Both files it takes from
the package need the standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - a PEP 517 backend re-exports the hooks it does not change
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from armillary.base.c_compiler import find_compiler, is_zig, need_compiler  # noqa: E402  (the source tree is not installed)


def _build_native() -> ModuleType:
    path = _ROOT / "armillary" / "runtime" / "build_native.py"
    spec = importlib.util.spec_from_file_location("armillary_build_native", path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _extra_requirements() -> list[str]:
    found = find_compiler(os.environ.get("ARMILLARY_CC", ""))
    return [] if found and not is_zig(found) else ["ziglang"]


def get_requires_for_build_wheel(config_settings: dict[str, object] | None = None) -> list[str]:
    """setuptools' requirements, and ziglang if there is no C compiler."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_extra_requirements()]


def get_requires_for_build_editable(config_settings: dict[str, object] | None = None) -> list[str]:
    """As for a wheel."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_extra_requirements()]


def build_editable(
    wheel_directory: str, config_settings: dict[str, object] | None = None, metadata_directory: str | None = None
) -> str:
    """setuptools' editable wheel, without its warning that the checkout holds a folder of the package's name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*Editable installation")
        return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


class BuildWithNative(build_py):
    """Copies the Python files and compiles the native runtime next to them."""

    def run(self) -> None:
        super().run()
        native = _build_native()
        base = _ROOT if self.editable_mode else Path(self.build_lib)
        folder = base / "armillary" / "runtime"
        for stale in folder.glob("libarmillary_runtime-*.so"):
            stale.unlink()
        compiler = need_compiler(os.environ.get("ARMILLARY_CC", ""))
        if self.editable_mode:
            native.build_library(compiler, folder / native.library_name())
        else:
            native.build_libraries(compiler, folder / "lib")
            _write_kernels(base)


def _write_kernels(base: Path) -> None:
    """Compile the compute library's kernels by the copied package, which needs what it needs where it is installed."""
    command = [sys.executable, "-m", "armillary.compute.ahead.pack", "armillary/compute/kernels"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, check=True, env=environment, cwd=base)  # whose package comes first


class PlatformWheel(bdist_wheel):
    """Tags the wheel for this platform (or the one that $ARMILLARY_WHEEL_PLATFORM names) and any Python 3.

    The library has no Python ABI. `tools/release.py` builds it with zig for an old C library, and names the platform.
    """

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", os.environ.get("ARMILLARY_WHEEL_PLATFORM") or super().get_tag()[2])


class BinaryDistribution(Distribution):
    """A distribution that is not pure Python."""

    def has_ext_modules(self) -> bool:
        return True
