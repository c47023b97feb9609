"""The text's build options, as far as they say something about a library that is compiled ahead of time.

In: `name=value`, with the names, values and defaults of the text (but `arch`: this machine's, `neon`: on). Out: a
`BuildOptions`, which knows the target, the macros of the header, and how to link. Invariant: an option that cannot be
followed is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from armillary.base.record import record
from armillary.errors import ConfigError

_SONAME = "libarmillary_compute.so.1"
_LIBRARY = "libarmillary_compute.so"
_TARGETS = {
    ("armv7a", "linux"): "llvm -mtriple=armv7a-linux-gnueabihf -mattr=+neon",
    ("armv7a", "android"): "llvm -mtriple=armv7a-linux-androideabi -mattr=+neon",
    ("arm64-v8a", "linux"): "llvm -mtriple=aarch64-linux-gnu",
    ("arm64-v8a", "android"): "llvm -mtriple=aarch64-linux-android",
    ("arm64-v8.2-a", "linux"): "llvm -mtriple=aarch64-linux-gnu -mattr=+v8.2a,+fullfp16,+dotprod",
    ("arm64-v8.2-a", "android"): "llvm -mtriple=aarch64-linux-android -mattr=+v8.2a,+fullfp16,+dotprod",
    ("armv7a", "bare_metal"): "llvm -mtriple=armv7a-unknown-none-eabihf -mattr=+neon",
    ("arm64-v8a", "bare_metal"): "llvm -mtriple=aarch64-unknown-none-elf",
    ("arm64-v8.2-a", "bare_metal"): "llvm -mtriple=aarch64-unknown-none-elf -mattr=+v8.2a,+fullfp16,+dotprod",
    ("x86_32", "linux"): "llvm -mtriple=i686-linux-gnu -mattr=+sse2",
    ("x86_64", "linux"): "llvm -mtriple=x86_64-linux-gnu",
    ("x86_64", "android"): "llvm -mtriple=x86_64-linux-android",
}
_BUILDS = ("native", "cross_compile", "embed_only")


@record(slots=True)
class BuildOptions:
    """What the text's `scons` takes; `build=native` is for this machine, `embed_only` writes OpenCL sources alone."""

    debug: bool = False
    asserts: bool = False
    logging: bool = False
    arch: str = ""
    os: str = "linux"
    build: str = "cross_compile"
    examples: bool = False
    Werror: bool = True
    standalone: bool = False
    opencl: bool = False
    neon: bool = True
    gles_compute: bool = False
    embed_kernels: bool = True
    set_soname: bool = False
    openmp: bool = False
    cppthreads: bool = True
    build_dir: str = "."
    extra_cxx_flags: str = ""

    @staticmethod
    def parse(words: Iterable[str]) -> BuildOptions:
        """Options from words `name=value`; flags are 0 or 1."""
        kinds = {each.name: each.type for each in fields(BuildOptions)}
        values: dict[str, object] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in kinds:
                raise ConfigError(f"there is no build option {name!r}", hint=f"known: {', '.join(kinds)}")
            if kinds[name] == "bool" and value not in ("0", "1"):
                raise ConfigError(f"{word!r} is no flag", hint=f"{name}=0 or {name}=1")
            values[name] = value == "1" if kinds[name] == "bool" else value
        if values.get("build") == "embed_only":
            values |= {"neon": False, "opencl": True}
        options = BuildOptions(**values)  # type: ignore[arg-type]  # of the fields' types
        options.check()
        return options

    def check(self) -> None:
        """Refuse what cannot be followed."""
        if self.gles_compute:
            raise ConfigError("gles_compute=1: there are no compute shaders of OpenGL ES", hint="opencl=1")
        if self.build not in _BUILDS:
            raise ConfigError(f"build={self.build!r}", hint=f"known: {', '.join(_BUILDS)}")
        if self.arch and self.build == "native":
            raise ConfigError(
                f"build=native is for this machine, arch={self.arch} is given", hint="build=cross_compile"
            )
        if self.is_bare_metal() and (self.cppthreads or self.openmp or self.opencl or self.examples):
            message = "os=bare_metal has no threads, no libOpenCL and nothing that links a program"
            raise ConfigError(message, hint="cppthreads=0, without openmp=1, opencl=1 and examples=1")
        if self.os != "linux" and not self.arch and self.neon:
            raise ConfigError(f"os={self.os} is not this machine's: arch is not said", hint="arch=arm64-v8a")
        if self.arch and (self.arch, self.os) not in _TARGETS:
            known = ", ".join(f"{arch} {system}" for arch, system in _TARGETS)
            raise ConfigError(f"there is no target for arch={self.arch} os={self.os}", hint=f"known: {known}")
        if not self.neon and not self.opencl:
            raise ConfigError("neon=0 and opencl=0 leave nothing to build")
        if Path(self.build_dir).is_absolute() or ".." in Path(self.build_dir).parts:
            raise ConfigError(f"build_dir={self.build_dir} is no sub-folder of the output")

    def target(self) -> str:
        """The compiler's target."""
        return _TARGETS[self.arch, self.os] if self.arch else "llvm"

    def is_bare_metal(self) -> bool:
        """Whether there is no operating system: a static library alone, and one thread."""
        return self.os == "bare_metal"

    def kernel_config(self) -> dict[str, object]:
        """Options of the passes that make kernels; `debug` forces what the text says."""
        made: dict[str, object] = {"tir.LoopPartition": {"partition_const_loop": True}}
        checks = {"tir.instrument_bound_checkers": True} if self.asserts or self.debug else {}
        return made | checks | ({"tir.debug_verify": True} if self.debug else {})

    def definitions(self) -> list[str]:
        """Macros of the header."""
        named = {
            "ARM_COMPUTE_DEBUG_ENABLED": self.debug,
            "ARM_COMPUTE_ASSERTS_ENABLED": self.asserts or self.debug,
            "ARM_COMPUTE_LOGGING_ENABLED": self.logging or self.debug,
            "NO_MULTI_THREADING": self.is_bare_metal(),
            "ARM_COMPUTE_CPP_SCHEDULER": self.cppthreads,
            "ARM_COMPUTE_OPENMP_SCHEDULER": self.openmp,
        }
        return [f"#define {name} 1" for name, is_on in named.items() if is_on]

    def library_name(self) -> str:
        """The file of the shared library."""
        return _SONAME if self.set_soname else _LIBRARY

    def link_options(self) -> list[str]:
        """What the linker is told."""
        return [f"-Wl,-soname,{_SONAME}"] if self.set_soname else []

    def link_names(self, folder: Path) -> None:
        """The name that programs are linked with, beside the one that they load."""
        if self.set_soname:
            name = folder / _LIBRARY
            name.unlink(missing_ok=True)
            name.symlink_to(_SONAME)
