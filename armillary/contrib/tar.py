"""Packages of objects: `lib.export_library("net.tar", tar.tar)`, linked on the device.

In: files. Out: a tar of them, or the files again. Invariant: unpacking leaves nothing outside its folder.
`export_library` knows `tar` and writes the package of `artifact/package.py`, which `load_module` links, here or on an
RPC server.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from armillary.base.boundary import boundary
from armillary.base.files import regular, written_atomically
from armillary.errors import ArtifactError


@boundary("tar", arguments=True)
def tar(output: str | os.PathLike[str], files: str | Sequence[str], options: Sequence[str] | None = None) -> None:
    """Put files into a tar under their own names, without folders. ArtifactError for one that cannot be read."""
    del options  # of compilers
    names = [files] if isinstance(files, str | os.PathLike) else list(files)
    with written_atomically(output) as stream, tarfile.open(fileobj=stream, mode="w:") as archive:
        for name in names:
            try:
                archive.add(name, Path(name).name, recursive=False)
            except OSError as error:
                raise ArtifactError(f"tar: {name} cannot be read: {error.strerror or error}") from None


@boundary("untar", arguments=True)
def untar(tar_file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Unpack a tar into a folder; links and paths that leave it are refused."""
    try:
        with open(tar_file, "rb", opener=regular) as stream, tarfile.open(fileobj=stream, mode="r:*") as archive:
            archive.extractall(directory, filter="data")
    except (tarfile.TarError, OSError) as error:
        raise ArtifactError(
            f"untar: {tar_file}: {error}", hint="give a tar that tar.tar or export_library wrote"
        ) from None


tar.output_format = "tar"  # type: ignore[attr-defined]  # read by export_library
