"""The thread pool does every iteration exactly once, whoever calls it from wherever."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from armillary.contrib.cc import get_cc
from armillary.runtime import Module, build_native
from armillary.runtime.native_library import ErrorText, native


@pytest.fixture(params=[1, 2, 3, 8])
def pool(request: pytest.FixtureRequest) -> int:
    pointer = native().arm_pool_create(request.param, 0, *ErrorText().args)
    yield pointer
    native().arm_pool_destroy(pointer)


@pytest.fixture
def kernel(module: Module) -> int:
    library = ctypes.CDLL(module.path)
    return ctypes.cast(library.count__p0, ctypes.c_void_p).value or 0


def count(pool: int, kernel: int, extent: int, max_threads: int = 64) -> np.ndarray:
    out = np.zeros(extent + 1, np.int32)
    table = (ctypes.c_void_p * 1)(out.ctypes.data)
    assert native().arm_pool_run(pool, kernel, table, None, extent, max_threads) == 0
    return out


def test_every_iteration_runs_once_for_many_sizes(pool: int, kernel: int) -> None:
    for extent in (0, 1, 2, 3, 7, 8, 9, 31, 64, 100, 1000, 4097):
        for _ in range(20):
            out = count(pool, kernel, extent)
            assert (out[:extent] == 1).all() and out[extent] == 0


def test_calls_from_several_threads_share_one_pool_without_deadlock(pool: int, kernel: int) -> None:
    failures: list[int] = []

    def caller() -> None:
        for extent in range(1, 400):
            out = count(pool, kernel, extent)
            if not (out[:extent] == 1).all():
                failures.append(extent)

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_child_of_fork_starts_its_own_workers(pool: int, kernel: int) -> None:
    count(pool, kernel, 100)
    child = os.fork()
    if child == 0:
        ok = all((count(pool, kernel, n)[:n] == 1).all() for n in (5, 100, 1000))
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (count(pool, kernel, 100)[:100] == 1).all()


def test_reconfiguring_changes_the_number_of_threads(kernel: int) -> None:
    error = ErrorText()
    pool = native().arm_pool_create(4, 0, *error.args)
    for threads in (1, 5, 2, 16):
        assert native().arm_pool_configure(pool, threads, 1, *error.args) == 0
        assert native().arm_pool_threads(pool) == threads
        assert (count(pool, kernel, 777)[:777] == 1).all()
    assert native().arm_pool_configure(pool, 0, 0, *error.args) == -1
    assert "1 to 1024" in error.text()
    native().arm_pool_destroy(pool)


def program_with_a_pool(folder: Path, name: str, *flags: str) -> Path:
    native_sources, program = Path(build_native.__file__).parent / "native", folder / name
    sources = [Path(__file__).parent / f"{name}.c", *(native_sources / n for n in ("arm_pool.c", "arm_util.c"))]
    places = [f"-I{native_sources}", f"-I{build_native.INCLUDE_DIR}"]
    subprocess.run([*get_cc(), "-O2", *flags, *places, "-pthread", "-o", program, *sources], check=True)
    return program


@pytest.fixture(scope="module", params=["", "-fsanitize=thread"])
def stress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_with_a_pool(tmp_path_factory.mktemp("stress"), "pool_stress", "-g", *request.param.split())


@pytest.mark.parametrize(
    ("threads", "callers", "jobs", "reconfigurations"),
    [
        (2, 1, 4_000, 0),
        pytest.param(2, 1, 20_000, 0, marks=pytest.mark.slow),
        (5, 3, 3_000, 0),
        (4, 2, 3_000, 20),
    ],
)
def test_jobs_of_several_callers_are_done_once_without_a_race(
    stress: Path, threads: int, callers: int, jobs: int, reconfigurations: int
) -> None:
    arguments = [str(n) for n in (threads, callers, jobs, reconfigurations)]
    done = subprocess.run([stress, *arguments], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel spreads addresses further than the compiler's thread sanitizer can follow")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is no worker beside the caller's")
def test_a_worker_gives_up_a_cpu_that_another_librarys_thread_spins_on(tmp_path: Path) -> None:
    program = program_with_a_pool(tmp_path, "pool_crowd", "-Dsched_yield=counted_yield")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) >= 3


def test_a_loop_leaves_graphs_of_other_threads_their_cpus(tmp_path: Path) -> None:
    program = program_with_a_pool(tmp_path, "pool_callers")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "3 2 1 3\n"
