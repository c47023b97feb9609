"""What caches keep is used only where nobody else can have written it; what is bad is made again."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay, te
from armillary.base.files import read_private, replacing, write_private
from armillary.codegen.workers.cache import Cache, cache_key
from armillary.contrib import graph_executor
from armillary.driver.devices.cached_record import read_cached, write_cached
from armillary.driver.roof import VERSION, Roof
from armillary.runtime import external
from armillary.runtime.build_native import INSTALLED, library_name
from armillary.runtime.native_library import _loaded, _program_folder, native
from armillary.target import host

KINDS = ("writable", "link", "pipe", "folder", "full folder")


def spoil(path: Path, kind: str, victim: Path) -> None:
    """Put in the place of a kept file what somebody else may have made; `victim` is what it was."""
    path.rename(victim)
    if kind == "writable":
        shutil.copy2(victim, path)
        path.chmod(0o666)
    elif kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(mode=0o700)
        if kind == "full folder":
            (path / "x").write_text("")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_entry_is_made_again_and_nothing_is_written_through_it(kind: str, tmp_path: Path) -> None:
    cache, key, victim = Cache(tmp_path / "cache"), cache_key("x"), tmp_path / "victim"
    cache.put(key, b"object")
    spoil(cache.path(key), kind, victim)
    before = victim.read_bytes()
    assert cache.get(key) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(key, b"anew")
    assert cache.get(key) == b"anew" and victim.read_bytes() == before
    assert cache.path(key).lstat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("kind", KINDS)
def test_facts_of_the_machine_are_asked_again(kind: str, tmp_path: Path) -> None:
    path, victim = tmp_path / "host.json", tmp_path / "victim"
    facts = {"triple": "t", "cpu": "c", "features": {}}
    host._keep(path, facts)
    assert host._read(path) == facts
    spoil(path, kind, victim)
    assert host._read(path) is None
    host._keep(path, {**facts, "cpu": "d"})
    assert host._read(path) == {**facts, "cpu": "d"} and json.loads(victim.read_text()) == facts


@pytest.mark.parametrize("kind", KINDS)
def test_roofs_are_measured_again(kind: str, tmp_path: Path) -> None:
    path, roof = tmp_path / "roof.json", Roof("model", 1, 1.0, 2.0, 3.0, 4.0, 5.0)
    write_cached(path, roof)
    assert read_cached(path, Roof, VERSION) == roof
    spoil(path, kind, tmp_path / "victim")
    assert read_cached(path, Roof, VERSION) is None


def test_another_users_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(tmp_path / "x", b"1")
    assert read_private(tmp_path / "x") == b"1"
    owner = os.geteuid()
    if owner == 0:
        os.chown(tmp_path / "x", 1234, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert read_private(tmp_path / "x") is None


def test_trimming_stays_in_the_cache(tmp_path: Path) -> None:
    cache, outside = Cache(tmp_path / "cache", max_bytes=1), tmp_path / "outside"
    cache.put(cache_key("x"), bytes(100))
    outside.mkdir()
    (outside / "mine").write_bytes(bytes(1000))
    (cache.directory / "kernels" / "zz").symlink_to(outside)
    (cache.directory / "trimmed").symlink_to(tmp_path / "made")
    with pytest.warns(RuntimeWarning, match="kernels/zz is owned or can be written"):
        cache.trim_at_times()
    assert (outside / "mine").exists() and not (tmp_path / "made").exists()
    assert not cache.path(cache_key("x")).exists()


def test_no_prepared_name_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([b"\0" * 6, b"\0" * 6, b"\1" * 6])
    monkeypatch.setattr(os, "urandom", lambda _: next(numbers))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f".out.part-{'00' * 6}").symlink_to(tmp_path / "elsewhere")
    with replacing(tmp_path / "out") as made:
        assert made.parent.name == f".out.part-{'01' * 6}"
        assert not made.parent.is_symlink() and made.parent.stat().st_mode & 0o7777 == 0o700
        made.write_bytes(b"1")
    assert (tmp_path / "out").read_bytes() == b"1" and not list((tmp_path / "elsewhere").iterdir())


# ---- libraries of the cache folder ----


def this_library() -> str:
    """The file that this process has loaded, or its copy in memory."""
    maps = Path("/proc/self/maps").read_text()
    found = re.search(rf"(/\S*{re.escape(library_name())})$", maps, re.MULTILINE)
    if found is None or not Path(found.group(1)).exists():
        pytest.skip("the native library of this process has no file")
    return found.group(1)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Loads the library with a cache folder of its own, by a C compiler that hands out one that was built before."""
    native()
    compiler, cache = tmp_path / "cc", tmp_path / "cache"
    message = f'#!/bin/sh\ncase " $* " in *" -shared "*) echo built >> {tmp_path}/log ;; esac\n'
    message += f'while [ $# -gt 0 ]; do [ "$1" = -o ] && cp {this_library()} "$2"; shift; done\n'
    compiler.write_text(message)
    compiler.chmod(0o700)
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(cache))
    monkeypatch.setenv("ARMILLARY_CC", str(compiler))

    def run() -> str:
        with warnings.catch_warnings(record=True) as caught:
            assert _loaded().arm_abi_version() == native().arm_abi_version()
        built = (tmp_path / "log").read_text().count("built")
        return f"{built} built, {'warned' if any('chmod go-w' in str(w.message) for w in caught) else 'quiet'}"

    return run


def is_in_the_package() -> bool:
    return INSTALLED.exists() or (Path(external.__file__).parent / library_name()).exists()


@pytest.mark.skipif(is_in_the_package(), reason="the package holds the library")
def test_the_native_library_is_built_anew_where_others_may_have_made_it(
    fresh: Callable[[], str], tmp_path: Path
) -> None:
    kept = tmp_path / "cache" / "native" / library_name()
    before = os.umask(0o002)
    try:
        assert (fresh(), fresh()) == ("1 built, quiet", "1 built, quiet")
    finally:
        os.umask(before)
    assert kept.stat().st_mode & 0o7777 == 0o700 and kept.parent.stat().st_mode & 0o7777 == 0o700
    kept.unlink()  # the old file is mapped in this process
    kept.write_text("no library")
    kept.chmod(0o666)
    assert fresh() == "2 built, quiet"
    spoil(kept, "link", tmp_path / "victim")
    assert fresh() == "3 built, quiet"
    kept.parent.chmod(0o777)
    assert fresh() == "4 built, warned"


def test_offload_libraries_that_others_may_have_made_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ARMILLARY_EXTERNAL_PATH", "")
    folder = external.built_folder()
    folder.mkdir(mode=0o700)
    (folder / external.external_file("somebody")).write_bytes(b"")
    assert external.has_external("somebody")
    folder.chmod(0o770)
    with pytest.warns(RuntimeWarning, match="chmod go-w"):
        assert not external.has_external("somebody")


# ---- programs of OpenCL devices ----


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "programs"
    folder.mkdir(mode=0o700)
    assert native().arm_opencl_keep_programs(os.fsencode(folder)) == 0
    yield folder
    native().arm_opencl_keep_programs(os.fsencode(_program_folder()))


def run_on_the_device() -> None:
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: x[i] * 3.0 + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].bind(s[y].op.axis[0], te.thread_axis("threadIdx.x"))
    device = armillary.opencl()
    given = armillary.nd.array(np.arange(8, dtype="float32"), device)
    made = armillary.nd.array(np.zeros(8, "float32"), device)
    armillary.build(s, [x, y], "opencl")(given, made)
    assert made.numpy().tolist() == [3.0 * i + 1 for i in range(8)]


@needs_opencl
def test_a_kept_program_is_checked_and_made_again(programs: Path, tmp_path: Path) -> None:
    run_on_the_device()
    (kept,) = programs.iterdir()
    whole, first = kept.read_bytes(), kept.stat().st_ino
    run_on_the_device()
    assert kept.stat().st_ino == first  # used as it is
    for at in (0, 25, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        kept.write_bytes(damaged)
        run_on_the_device()
        assert kept.read_bytes()[:8] == whole[:8] and kept.read_bytes() != damaged
    kept.write_bytes(kept.read_bytes()[:-1])
    run_on_the_device()
    other = programs / ("0" * 32 + ".clbin")
    kept.rename(other)  # another program's binary under this name
    shutil.copy2(other, kept)
    data = bytearray(kept.read_bytes())
    data[8] ^= 1
    kept.write_bytes(data)
    run_on_the_device()
    assert kept.read_bytes()[8:24] == whole[8:24]


PART_BYTES, MOST_PARTS = 98_304, 4  # of arm_opencl_program.c


@needs_opencl
def test_kernels_of_a_long_source_are_built_in_parts_that_are_kept(programs: Path) -> None:
    x, values = relay.var("x", shape=(12, 16)), np.linspace(-1, 1, 192, dtype="float32").reshape(12, 16)
    fields = [relay.nn.softmax(relay.strided_slice(x, [0, 0], [12, 3 + n])) for n in range(12)]
    module = armillary.IRModule.from_expr(relay.Function([x], relay.Tuple(fields)))
    library = relay.build(module, "opencl")
    kind, source = next(iter(library.descriptor.device_code.items()))
    note = f"  /* {'.' * PART_BYTES} */"  # each kernel is as long as a part has to be
    source = re.sub(r"^(__kernel .*)$", rf"\1\n{note}", source, flags=re.MULTILINE)
    library.descriptor = replace(library.descriptor, device_code={kind: source})
    count = min(len(os.sched_getaffinity(0)), MOST_PARTS)
    assert count > 1 or len(os.sched_getaffinity(0)) == 1
    for _ in range(2):  # from source, then from what was kept
        graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
        graph.run(x=values)
        for n in range(12):
            wanted = np.exp(values[:, : 3 + n])
            got = graph.get_output(n).numpy()
            np.testing.assert_allclose(got, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)
        assert len(list(programs.iterdir())) == count


@needs_opencl
@pytest.mark.parametrize("kind", KINDS)
def test_programs_that_others_may_have_made_are_not_used(kind: str, programs: Path, tmp_path: Path) -> None:
    run_on_the_device()
    (kept,) = programs.iterdir()
    victim = tmp_path / "victim"
    spoil(kept, kind, victim)
    before = victim.read_bytes()
    run_on_the_device()
    assert victim.read_bytes() == before
    assert kind == "full folder" or (kept.is_file() and kept.lstat().st_mode & 0o7777 == 0o600)


@needs_opencl
def test_a_folder_of_programs_that_others_can_write_to_is_not_used(programs: Path) -> None:
    programs.chmod(0o777)
    run_on_the_device()
    assert not list(programs.iterdir())
    error = ctypes.c_char_p(os.fsencode(programs))
    assert native().arm_opencl_keep_programs(error) == 1
