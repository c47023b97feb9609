"""Cache, compile workers, toolchain, and cross compilation run under emulation."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from harness import compiled
from test_numerics import kernel
from test_statements import tile

from armillary.base.config import setting
from armillary.codegen.build import build_functions
from armillary.codegen.llvm.target import emit_object, request
from armillary.codegen.object.jit import LoadedObjects
from armillary.codegen.toolchain import find_toolchain, link_shared, zig_triple
from armillary.codegen.workers.cache import Cache, cache_key
from armillary.codegen.workers.pool import Pool, Worker
from armillary.errors import ArtifactError, ExecutionError, InternalError, TargetError, UnsupportedError
from armillary.target import Target

ADD = "define i32 @add(i32 %a, i32 %b) {\n  %c = add i32 %a, %b\n  ret i32 %c\n}\n"
AARCH64 = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


def need(*tools: str) -> None:
    """Skip without the tools on a user's machine; fail in CI."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing and setting("CI"):
        pytest.fail(f"CI lacks {missing}")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def test_cache_returns_what_was_put_and_treats_damage_as_a_miss(tmp_path: Path) -> None:
    cache, key = Cache(tmp_path), cache_key("a", b"b")
    assert cache.get(key) is None
    cache.put(key, b"object")
    assert cache.get(key) == b"object"
    data = bytearray(cache.path(key).read_bytes())
    for damaged in (data[:-1], data[:20], b"", bytes(data[:-1]) + b"!"):
        cache.path(key).write_bytes(damaged)
        assert cache.get(key) is None
        assert not cache.path(key).exists()


def test_cache_key_depends_on_where_parts_end() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc")


def test_cache_evicts_the_least_recently_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=3 * 1040)
    keys = [cache_key(str(k)) for k in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, bytes(1000))
        os.utime(cache.path(key), (age, age))
    assert cache.get(keys[0]) is not None  # used now: the second entry is the oldest
    cache.put(keys[3], bytes(1000))
    assert cache.trim() == 1
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]


@pytest.mark.filterwarnings("error")
def test_unwritable_cache_warns_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = Cache(blocked)
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        cache.put(cache_key("x"), b"")
    cache.put(cache_key("y"), b"")  # a second warning would be an error
    assert len(caught) == 1


def test_cache_without_room_leaves_nothing_and_one_that_is_read_only_still_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        return fail

    cache, key, damaged = Cache(tmp_path), cache_key("x"), cache_key("y")
    with monkeypatch.context() as full:
        full.setattr("os.replace", refuse(errno.ENOSPC))
        with pytest.warns(RuntimeWarning, match="No space left"):
            cache.put(key, b"object")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    cache = Cache(tmp_path)
    cache.put(key, b"object")
    cache.put(damaged, b"object")
    cache.path(damaged).write_bytes(b"no entry")
    with monkeypatch.context() as frozen:
        frozen.setattr(Path, "unlink", refuse(errno.EROFS))
        frozen.setattr("os.utime", refuse(errno.EROFS))
        assert cache.get(key) == b"object" and cache.get(damaged) is None
        assert Cache(tmp_path, max_bytes=1).trim() == 0


def test_an_entry_under_another_key_is_a_miss_and_goes(tmp_path: Path) -> None:
    cache, key, other = Cache(tmp_path), cache_key("x"), cache_key("y")
    cache.put(key, b"object")
    cache.path(other).parent.mkdir(mode=0o700, exist_ok=True)
    shutil.copy2(cache.path(key), cache.path(other))
    assert cache.get(other) is None
    assert not cache.path(other).exists()
    assert cache.get(key) == b"object"


@pytest.mark.parametrize("kind", ["writable", "link", "pipe", "folder"])
def test_entries_that_others_may_have_made_are_not_used(kind: str, tmp_path: Path) -> None:
    cache, key = Cache(tmp_path / "cache"), cache_key("x")
    cache.put(key, b"object")
    path = cache.path(key)
    kept = tmp_path / "kept"
    path.rename(kept)
    if kind == "writable":
        shutil.copy2(kept, path)
        path.chmod(0o666)
    elif kind == "link":
        path.symlink_to(kept)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(mode=0o700)
    assert cache.get(key) is None


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_cache_folder_that_others_can_write_is_not_used_and_said_once(depth: int, tmp_path: Path) -> None:
    key = cache_key("x")
    Cache(tmp_path / "cache").put(key, b"object")
    folders = [tmp_path / "cache", tmp_path / "cache" / "kernels", Cache(tmp_path / "cache").path(key).parent]
    folders[depth].chmod(0o777)
    cache = Cache(tmp_path / "cache")
    with pytest.warns(RuntimeWarning, match="can be written by somebody else; chmod go-w"):
        assert cache.get(key) is None
    with warnings.catch_warnings(action="error") if sys.version_info >= (3, 11) else contextlib.nullcontext():
        cache.put(key, b"another")
        assert cache.get(key) is None
    folders[depth].chmod(0o755)
    assert Cache(tmp_path / "cache").get(key) == b"object"


def test_new_cache_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        cache, key = Cache(tmp_path / "a" / "b"), cache_key("x")
        cache.put(key, b"object")
    finally:
        os.umask(before)
    assert cache.get(key) == b"object"
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in (tmp_path / "a" / "b", cache.path(key).parent))


def test_second_build_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    first = compiled([tile()], "llvm", cache)
    monkeypatch.setattr("armillary.codegen.build.compile_many", lambda *_: pytest.fail("compiled again"))
    assert compiled([tile()], "llvm", cache).objects == first.objects


def test_workers_compile_in_order_and_are_reused() -> None:
    pool = Pool()
    texts = [ADD.replace("@add", f"@add{k}") for k in range(5)]
    objects = pool.compile_many([request(text, Target("llvm")) for text in texts], 2)
    assert len(pool.idle) <= 2
    again = pool.compile_many([request(texts[0], Target("llvm"))] * 2, 2)
    assert again[0] == objects[0] == emit_object(texts[0], "llvm")
    assert all(f"add{k}".encode() in data for k, data in enumerate(objects))
    workers = list(pool.idle)
    pool.close()
    assert all(not worker.is_alive for worker in workers)


def test_killed_worker_is_a_clear_error_and_the_next_call_works() -> None:
    worker, pool = Worker(), Pool()
    good = request(ADD, Target("llvm"))
    assert worker.ask(asdict(good))
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    with pytest.raises(ExecutionError, match=r"worker died .exit status -9"):
        worker.ask(asdict(good))
    worker.stop()
    pool.idle.append(worker)
    assert len(pool.compile_many([good, good], 2)) == 2
    pool.close()


def test_malformed_ir_is_an_internal_error_in_a_worker_and_here() -> None:
    pool = Pool()
    with pytest.raises(InternalError, match="LLVM refuses"):
        pool.compile_many([request("define nonsense", Target("llvm"))] * 2, 2)
    pool.close()
    with pytest.raises(InternalError, match="LLVM refuses"):
        emit_object("define nonsense", "llvm")


def test_no_worker_outlives_its_parent() -> None:
    script = "from armillary.codegen.workers.pool import *; w = Worker(); POOL.idle.append(w); "
    script += "print(w.process.pid, flush=True)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_unknown_triple_names_itself() -> None:
    with pytest.raises(TargetError, match="nonsense-os"):
        emit_object(ADD, "llvm -mtriple=nonsense-os")


def test_unknown_symbol_and_missing_foreign_function_are_refused() -> None:
    code = LoadedObjects([emit_object(ADD, "llvm")])
    assert code.address("add")
    with pytest.raises(ExecutionError, match="no symbol 'sub'"):
        code.address("sub")
    with pytest.raises(ExecutionError, match="not in this process"):
        LoadedObjects([], ["surely_no_such_function"])


def test_missing_compiler_and_failing_link_say_what_ran(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no-such-cc"):
        find_toolchain(Target("llvm"), "no-such-cc")
    with pytest.raises(ArtifactError, match="there is no folder"):
        link_shared([], tmp_path / "missing" / "x.so", Target("llvm"))
    need("cc")
    with pytest.raises(TargetError, match=r"failed.*\n.*not_there.o"):
        link_shared([tmp_path / "not_there.o"], tmp_path / "x.so", Target("llvm"))
    assert list(tmp_path.iterdir()) == []


def test_fast_math_and_opt_level_change_the_code() -> None:
    function = kernel({"x": lambda a, b: a * b + a}, "float32", 8, 1)
    strict, fast, plain = (compiled([function], f"llvm{flags}") for flags in ("", " -fast-math", " -opt-level=0"))
    assert "fmuladd" in strict.get_source("ll") and " fast " not in strict.get_source("ll")
    assert "call fast float @llvm.fmuladd" in fast.get_source("ll")
    assert plain.get_source("asm") != strict.get_source("asm")


def test_a_target_attribute_without_effect_is_refused_before_anything_is_built() -> None:
    with pytest.raises(UnsupportedError, match=r"'cl-opt'(.|\n)*leave -cl-opt out"):
        build_functions([], "llvm -cl-opt=-unroll-threshold=4", cache=None)


def test_environment_chooses_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CC", f"{sys.executable} -m something")
    assert find_toolchain(Target("llvm")).command == (sys.executable, "-m", "something")


def test_zig_triples_have_architecture_system_abi() -> None:
    assert zig_triple("arm64-linux-android") == "aarch64-linux-android"
    assert zig_triple("x86_64-unknown-linux-gnu") == "x86_64-linux-gnu"
    assert zig_triple("armv7a-linux-gnueabihf") == "arm-linux-gnueabihf"


MAIN = r"""
#include <stdint.h>
#include <stdio.h>
int32_t f0__p0(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread);
static float a[6 * 64], b[64 * 16], c[6 * 16];
int main(void) {
  for (int i = 0; i < 6 * 64; ++i) a[i] = (float)(i % 13 - 6);
  for (int i = 0; i < 64 * 16; ++i) b[i] = (float)(i % 7 - 3);
  void *data[] = {a, b, c, 0, 0};
  if (f0__p0(data, 0, 0, 1, 0)) return 1;
  for (int i = 0; i < 6 * 16; ++i) printf("%d ", (int)c[i]);
  return 0;
}
"""


@pytest.mark.parametrize("target", [AARCH64, "c -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"])
def test_aarch64_kernels_run_under_emulation(target: str, tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
    module = compiled([tile()], target)
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "k.o").write_bytes(module.objects[0])
    build = ["aarch64-linux-gnu-gcc", "-static", "-O1", "main.c", "k.o", "-o", "run", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run(["qemu-aarch64-static", "run"], cwd=tmp_path, capture_output=True, text=True, check=True)
    a = (np.arange(6 * 64) % 13 - 6).reshape(6, 64)
    b = (np.arange(64 * 16) % 7 - 3).reshape(64, 16)
    assert [int(x) for x in done.stdout.split()] == np.maximum(a @ b, 0).ravel().tolist()


def test_shared_library_for_aarch64_links(tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc")
    module = compiled([tile()], AARCH64)
    path = link_shared(module.objects, tmp_path / "k.so", module.target)
    assert path.read_bytes()[18] == 0xB7  # ELF machine: AArch64
