"""`armc build-external arm_compute_lib --fetch`: the library in a folder, from a release, Debian packages, apt."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from armillary.cli.main import main
from armillary.errors import ArtifactError, ConfigError
from armillary.offload.acl.find_library import find_library
from armillary.offload.acl.install_library import install_library

LIBRARY = b"\x7fELF... arm_compute_version=v21.08 Build options: {'arch': 'arm64-v8a'}"
FETCH = ["build-external", "arm_compute_lib", "--fetch"]
TOP = "arm_compute-v21.08-bin-linux"
RELEASE = {
    f"{TOP}/arm_compute/core/Types.h": b"// types",
    f"{TOP}/include/half/half.hpp": b"// half",
    f"{TOP}/documentation/index.html": b"<html>",
    f"{TOP}/lib/linux-arm64-v8a-neon/libarm_compute.so": LIBRARY,
    f"{TOP}/lib/linux-arm64-v8a-neon/libarm_compute_core.so": LIBRARY,
    f"{TOP}/lib/linux-armv7a-neon/libarm_compute.so": b"\x7fELF of 32 bits",
}


def archive(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as whole:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            whole.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            whole.addfile(info)
    return path


def debian(path: Path, files: dict[str, bytes], links: dict[str, str]) -> Path:
    """A package: an ar archive of three members, the last a tar."""
    data = archive(path.with_suffix(".tar"), files, links).read_bytes()
    whole = b"!<arch>\n"
    for name, member in (("debian-binary", b"2.0\n"), ("control.tar.gz", b"odd"), ("data.tar.gz", data)):
        whole += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(member):<10}`\n".encode()
        whole += member + b"\n" * (len(member) % 2)
    path.write_bytes(whole)
    return path


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_of_a_release_one_library_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = archive(tmp_path / "release.tar.gz", RELEASE), tmp_path / "acl"
    assert main([*FETCH, str(folder), "--from", str(file), "--target-lib", "linux-arm64-v8a-neon"]) == 0
    assert f"Arm Compute Library 21.08 in {folder}" in capsys.readouterr().out
    wanted = [
        "arm_compute/core/Types.h",
        "include/half/half.hpp",
        "lib/libarm_compute.so",
        "lib/libarm_compute_core.so",
    ]
    assert names(folder) == wanted
    assert find_library(folder, ()).libraries == (folder / "lib",)


def test_debian_packages_are_read_without_debian(tmp_path: Path) -> None:
    triple = "aarch64-linux-gnu"
    headers = {f"./usr/include/{triple}/arm_compute/core/Types.h": b"// types", "./usr/share/doc/x": b"doc"}
    first = debian(tmp_path / "dev.deb", headers, {f"./usr/lib/{triple}/libarm_compute.so": "libarm_compute.so.20"})
    second = debian(tmp_path / "lib.deb", {f"./usr/lib/{triple}/libarm_compute.so.20": LIBRARY}, {})
    assert install_library(tmp_path / "acl", [first, second]) == "21.08"
    assert names(tmp_path / "acl") == [
        "include/arm_compute/core/Types.h",
        "lib/libarm_compute.so",
        "lib/libarm_compute.so.20",
    ]


def test_apt_gives_the_library_that_this_debian_has(tmp_path: Path) -> None:
    asked = ["apt-get", "download", "--print-uris", "libarm-compute-dev:arm64"]
    if shutil.which("apt-get") is None or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("apt has no list with libarm-compute-dev:arm64")
    version = install_library(tmp_path / "acl")
    assert version
    assert (tmp_path / "acl" / "include" / "arm_compute" / "core" / "Types.h").exists()


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    file = archive(tmp_path / "release.tar.gz", RELEASE)
    with pytest.raises(ConfigError, match="has 2 libraries") as message:
        install_library(tmp_path / "acl", [file])
    assert "linux-arm64-v8a-neon, linux-armv7a-neon" in str(message.value)
    with pytest.raises(ConfigError, match="no library for 'linux-x86'"):
        install_library(tmp_path / "acl", [file], "linux-x86")
    outside = archive(tmp_path / "outside.tar.gz", {"a/../../x": b"", **RELEASE})
    with pytest.raises(ArtifactError, match="leaves the archive"):
        install_library(tmp_path / "acl", [outside], "linux-arm64-v8a-neon")
    (tmp_path / "odd.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ArtifactError, match="cannot be unpacked"):
        install_library(tmp_path / "acl", [tmp_path / "odd.tar.gz"])
    assert not (tmp_path / "x").exists()
