"""Packages, params and graphs read back equal, and damage is always an ArtifactError."""

from __future__ import annotations

import contextlib
import io
import random
import tarfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from armillary import runtime
from armillary.artifact import Descriptor, GraphSpec, load_params, save_params
from armillary.artifact.package import load_package, save_package
from armillary.errors import ArmillaryError, ArtifactError
from armillary.runtime import GraphExecutor, Module

from .conftest import WEIGHT, descriptor, graph, make_package

SEED = 20240


def damaged(data: bytes, count: int) -> list[bytes]:
    """Truncations, bit flips and byte insertions, reproducible from SEED."""
    source, result = random.Random(SEED), []
    for _ in range(count):
        copy = bytearray(data)
        match source.randrange(3):
            case 0:
                del copy[source.randrange(len(copy)) :]
            case 1:
                for _ in range(source.randrange(1, 4)):
                    copy[source.randrange(len(copy))] ^= 1 << source.randrange(8)
            case _:
                at = source.randrange(len(copy))
                copy[at:at] = source.randbytes(source.randrange(1, 9))
        result.append(bytes(copy))
    return result


def test_descriptor_and_graph_round_trip() -> None:
    assert Descriptor.from_json(descriptor().to_json()) == descriptor()
    assert GraphSpec.from_json(graph().to_json()) == graph()


def test_params_round_trip_every_dtype() -> None:
    values = {
        **{t: np.ones((2, 3), t) for t in ("float16", "float32", "float64", "int8", "uint8", "int64", "bool")},
        "bfloat16": np.ones(5, ml_dtypes.bfloat16),
        "float8": np.ones(5, ml_dtypes.float8_e4m3fn),
        "int4": np.ones(5, ml_dtypes.int4),
        "scalar": np.float32(3),
        "none": np.zeros((0, 4), np.int32),
    }
    loaded = load_params(save_params(values))
    assert list(loaded) == list(values)
    for name, value in values.items():
        assert loaded[name].dtype == value.dtype and loaded[name].shape == value.shape, name
        assert (loaded[name] == value).all(), name


def test_params_layout_is_the_relay_era_one() -> None:
    blob = save_params({"w": np.zeros(2, np.float32)})
    assert blob[:8] == (0xF7E58D4F05049CB7).to_bytes(8, "little")
    assert blob[41:49] == (0xDD5E40F096B4A13F).to_bytes(8, "little")
    assert len(blob) == 24 + 9 + 8 + 32 + 4 + 8 + 8 + 8 - 4


def test_package_is_deterministic_and_round_trips(library: Path, tmp_path: Path) -> None:
    package = make_package(library)
    for name in ("a.tar", "b.tar"):
        save_package(tmp_path / name, package)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert load_package(tmp_path / "a.tar") == package


@pytest.mark.parametrize("kind", ["path", "link", "device", "extra", "twice"])
def test_hostile_tar_members_are_refused(library: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.tar"
    save_package(path, make_package(library))
    member = tarfile.TarInfo({"path": "../mod.so", "extra": "evil.sh"}.get(kind, "mod.so"))
    member.type = {"link": tarfile.SYMTYPE, "device": tarfile.CHRTYPE}.get(kind, tarfile.REGTYPE)
    member.linkname = "/etc/passwd" if kind == "link" else ""
    with tarfile.open(path, "a") as archive:
        archive.addfile(member, io.BytesIO())
    with pytest.raises(ArtifactError, match="unexpected member"):
        load_package(path)


def test_damaged_params_never_crash(module: Module) -> None:
    executor = GraphExecutor(graph().to_json(), module)
    for blob in damaged(save_params({"w": WEIGHT}), 400):
        for read in (load_params, executor.load_params):
            with contextlib.suppress(ArmillaryError):
                read(blob)


def test_damaged_graphs_never_crash(module: Module) -> None:
    for text in damaged(graph().to_json().encode(), 400):
        for read in (GraphSpec.from_json, lambda t: GraphExecutor(t, module)):
            with contextlib.suppress(ArmillaryError):
                read(text)


def test_damaged_descriptors_never_crash() -> None:
    for text in damaged(descriptor().to_json().encode(), 300):
        with contextlib.suppress(ArmillaryError):
            Descriptor.from_json(text)


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, '{"abi":1,"abi":1}', "NaN", '{"abi":1}', '{"nodes":[],"attrs":{}}', "\ud800", "9" * 5000, "0"],
)
def test_hostile_json_is_an_artifact_error(text: str, module: Module) -> None:
    for read in (Descriptor.from_json, GraphSpec.from_json):
        with pytest.raises(ArtifactError):
            read(text)
    with pytest.raises(ArtifactError):
        GraphExecutor(text.encode("utf-8", "surrogatepass"), module)


def test_truncated_library_is_refused_before_loading(library: Path, tmp_path: Path) -> None:
    data = library.read_bytes()
    path = tmp_path / "x.so"
    for size in range(0, len(data), 97):
        path.write_bytes(data[:size])
        with pytest.raises(ArtifactError):
            runtime.load_module(path)
