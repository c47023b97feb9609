"""Libraries that are linked into a program and found there: "llvm -system-lib", Runtime(…, {"system-lib": True}).

In: a library, perhaps with a network. Out: one object, or a static library, whose constructor registers what it holds
in the process; `runtime.system_lib()` (C: arm_module_system) gives the functions. Invariant: what an object for x86-64
or AArch64 defines is local to it, so that any number of them are linked together. The part that registers:
codegen/object/registration.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from armillary.artifact import Descriptor
from armillary.base.c_compiler import archiver_of, write_archive
from armillary.base.files import replacing, scratch_folder, write_atomic
from armillary.codegen.llvm.target import request
from armillary.codegen.object.elf_merge import merged_object
from armillary.codegen.object.registration import Network, registration_ir
from armillary.codegen.toolchain import find_toolchain
from armillary.codegen.workers.pool import compile_many
from armillary.errors import ConfigError, TargetError
from armillary.target import Target

SUFFIXES = (".o", ".a")
Linker = Callable[..., object] | None
DataObject = Callable[[Path], Path]  # an object of the parameters, in a folder


def linked_objects(
    host: Target,
    objects: Sequence[bytes],
    descriptor: Descriptor,
    network: Network | None = None,
    params: bytes = b"",
    *,
    are_kernels: bool = False,
) -> tuple[bytes, ...]:
    """What registers itself: one object with everything; else all of them, and that of the parameters is wanted.

    `are_kernels`: the functions are a network's, whose names say what they compute.
    """
    ir = registration_ir(descriptor, network, are_kernels)
    parts = (*objects, *compile_many([request(ir, host)], jobs=1))
    merged = merged_object(parts, {network.params_symbol: params} if network else {}, local=True)
    return parts if merged is None else (merged,)


def write_static(path: Path, host: Target, objects: Sequence[bytes], data: DataObject | None, linker: Linker) -> None:
    """Write an object (.o) or a static library (.a), by `linker(output, objects, options)` where there is one."""
    is_whole = len(objects) == 1
    if path.suffix != ".a" and not is_whole:
        message = f"{path.name}: the objects of target {host} cannot be joined to one"
        raise ConfigError(message, hint="export_library to a static library (.a)")
    if path.suffix != ".a" and linker is None:
        write_atomic(path, objects[0])
        return
    with scratch_folder() as folder, replacing(path, 0o666) as partial:
        names = [folder / f"part{i}.o" for i in range(len(objects))]
        for name, code in zip(names, objects):
            write_atomic(name, code)
        names += [] if is_whole or data is None else [data(folder)]
        if linker is not None:
            linker(str(partial), [str(name) for name in names], [])
            return
        command = find_toolchain(host).command
        archiver = archiver_of(command)
        if archiver is None:
            raise TargetError(
                f"no archiver (ar) beside {command[0]}", hint="install binutils, or export an object (.o)"
            )
        write_archive(archiver, [str(name) for name in names], partial)
