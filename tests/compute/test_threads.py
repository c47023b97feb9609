"""First runs by several threads, each case in a process of its own: what is made then is made once, and stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from subprocess import CompletedProcess
from textwrap import dedent

import pytest
from opencl_device import needs_opencl
from sanitizers import WATCHING_THREADS, watching_threads

from armillary.base.files import scratch_folder
from armillary.base.once import Once, once
from armillary.contrib.cc import get_cc
from armillary.runtime import build_native

_HEAD = """
import threading
import numpy as np
from armillary.compute import *

THREADS = 6
gate = threading.Barrier(THREADS)
faults = []

def image(kind=Image):
    made = kind()
    made.allocator().init(TensorInfo(95, 61, Format.U8))
    return made

def pixels(n):
    return np.random.default_rng(n).integers(0, 256, (61, 95)).astype("uint8")

def filtered(function, n, kind=Image):
    source, target = image(kind), image(kind)
    function.configure(source, target, BorderMode.REPLICATE)
    for tensor in (source, target):
        tensor.allocator().allocate()
    source.write(pixels(n))
    return target

def all_at_once(body):
    def guarded(n):
        try:
            gate.wait()
            body(n)
        except BaseException as error:
            faults.append(repr(error))
    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults, faults
"""

_CASES = {
    "the same function": """
        functions = [NEGaussian3x3() for _ in range(THREADS)]
        targets = [filtered(f, 0) for f in functions]
        all_at_once(lambda n: [functions[n].run() for _ in range(30)])
        assert all((t.array() == targets[0].array()).all() for t in targets)
    """,
    "other functions, and the border of each": """
        kinds = [NEGaussian3x3, NEMedian3x3, NEErode, NEDilate, NEBox3x3, NEGaussian5x5]
        functions = [kind() for kind in kinds]
        targets = [filtered(f, n) for n, f in enumerate(functions)]
        all_at_once(lambda n: [functions[n].run() for _ in range(30)])
        for n, kind in enumerate(kinds):
            again = kind()
            wanted = filtered(again, n)
            again.run()
            assert (targets[n].array() == wanted.array()).all()
    """,
    "a function that all run": """
        function = NEGaussian5x5()
        target = filtered(function, 1)
        all_at_once(lambda n: [function.run() for _ in range(30)])
        assert target.array().any()
    """,
    "threads are set while others run": """
        functions = [NEMedian3x3() for _ in range(THREADS)]
        targets = [filtered(f, 0) for f in functions]

        def body(n):
            for k in range(40):
                Scheduler.get().set_num_threads(1 + (n + k) % 3) if n < 2 else functions[n].run()

        all_at_once(body)
        assert all((t.array() == targets[-1].array()).all() for t in targets[2:])
    """,
    "another scheduler": """
        class Halves:
            def schedule(self, kernel, split):
                for part in range(2):
                    kernel.run(kernel.window().split_window(split, part, 2))
            def num_threads(self): return 1
            def set_num_threads(self, n): pass
        Scheduler.set(Halves())
        functions = [NEGaussian3x3() for _ in range(THREADS)]
        targets = [filtered(f, 0) for f in functions]
        all_at_once(lambda n: [functions[n].run() for _ in range(10)])
        assert all((t.array() == targets[0].array()).all() for t in targets)
    """,
    "loops over rows": """
        means = [Scalar() for _ in range(THREADS)]
        functions = [NEMeanStdDev() for _ in range(THREADS)]
        sources = [image() for _ in range(THREADS)]
        for n, (function, source) in enumerate(zip(functions, sources)):
            function.configure(source, means[n])
            source.allocator().allocate()
            source.write(pixels(n))
        all_at_once(lambda n: [functions[n].run() for _ in range(20)])
        assert all(abs(m.value - pixels(n).mean()) < 1e-3 for n, m in enumerate(means)), means
    """,
    "layers": """
        layers, outputs = [], []
        for n in range(THREADS):
            source, target = Tensor(), Tensor()
            for tensor in (source, target):
                tensor.allocator().init(TensorInfo(TensorShape(33, 5), 1, DataType.F32))
            layers.append(NESoftmaxLayer())
            layers[-1].configure(source, target)
            source.allocator().allocate()
            target.allocator().allocate()
            source.write(np.full((5, 33), n, "float32"))
            outputs.append(target)
        all_at_once(lambda n: [layers[n].run() for _ in range(20)])
        assert all(np.allclose(t.array(), 1 / 33) for t in outputs)
    """,
    "a pipeline with a pool of memory for each": """
        manager = MemoryManagerOnDemand(BlobLifetimeManager(), PoolManager())
        group = MemoryGroup(manager)
        a, b, c = image(), image(), image()
        first, second = NEMedian3x3(), NEGaussian3x3()
        group.manage(a)
        group.manage(b)
        first.configure(a, b, BorderMode.REPLICATE)
        a.allocator().allocate()
        group.manage(c)
        second.configure(b, c, BorderMode.REPLICATE)
        b.allocator().allocate()
        c.allocator().allocate()
        manager.set_allocator(Allocator())
        manager.set_num_pools(3)
        manager.finalize()

        def body(n):
            for _ in range(20):
                with group:
                    a.array()[...] = n
                    first.run()
                    second.run()
                    assert (c.array() == n).all()

        all_at_once(body)
    """,
}
_ON_DEVICE = """
    CLScheduler.get().default_init()
    functions = [CLGaussian3x3() for _ in range(THREADS)]
    targets = [filtered(f, 0, CLImage) for f in functions]
    all_at_once(lambda n: [functions[n].run() for _ in range(10)])
    CLScheduler.get().sync()
    assert CLKernelLibrary.get().num_programs() == 1, CLKernelLibrary.get().num_programs()
    assert all((t.read() == targets[0].read()).all() for t in targets)
"""


_RACE = """
    from armillary import nd
    target = nd.array(np.zeros(1 << 14, "uint8"))
    all_at_once(lambda n: [nd.array(np.full(1 << 14, n, "uint8")).copyto(target) for _ in range(3)])
"""


def _run(body: str, before: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    command = [*before, sys.executable, "-X", "faulthandler", "-c", _HEAD + dedent(body) + "\nprint('ok')\n"]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(variables or {})}, check=False)


def _check(body: str) -> None:
    done = _run(body)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-3000:]


@pytest.mark.parametrize("name", _CASES)
def test_threads_run_functions_for_the_first_time(name: str) -> None:
    _check(_CASES[name])


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], CompletedProcess[str]]]:
    """What runs a program over a native runtime that watches its threads."""
    watching = watching_threads(get_cc())
    if watching is None:
        pytest.skip(f"{get_cc()[0]} has no thread sanitizer")
    before, variables = watching
    with scratch_folder() as folder:  # this user's alone
        build_native.build_library(get_cc(), folder / "native" / build_native.library_name(), WATCHING_THREADS)
        (folder / "native").chmod(0o700)

        def run(body: str) -> CompletedProcess[str]:
            done = _run(body, before, {**variables, "ARMILLARY_CACHE_DIR": str(folder)})
            if "unexpected memory mapping" in done.stderr:
                pytest.skip("this kernel spreads addresses further than the compiler's thread sanitizer can follow")
            return done

        yield run


def test_the_watched_runtime_sees_a_race(watched: Callable[[str], CompletedProcess[str]]) -> None:
    for _ in range(5):  # on a busy machine one thread may have ended before the other begins
        race = watched(_RACE)
        if race.returncode == 66:
            break
    assert race.returncode == 66 and "data race" in race.stderr, race.stderr[-2000:]


@pytest.mark.parametrize(
    "name",
    [
        n if n in ("threads are set while others run", "layers") else pytest.param(n, marks=pytest.mark.slow)
        for n in _CASES
    ],
)
def test_the_native_runtime_has_no_race_in_first_runs(
    name: str, watched: Callable[[str], CompletedProcess[str]]
) -> None:
    done = watched(_CASES[name])
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-3000:]


@needs_opencl
def test_threads_run_functions_of_a_device_for_the_first_time() -> None:
    _check(_ON_DEVICE)


def test_a_value_is_made_once_and_others_are_made_meanwhile() -> None:
    made, gate, both = [], threading.Barrier(8), threading.Barrier(2)

    @once
    def value(key: int) -> object:
        made.append(key)
        both.wait(10)  # neither key waits for the other
        return object()

    results: list[tuple[int, object]] = []

    def ask(n: int) -> None:
        gate.wait(10)
        results.append((n % 2, value(n % 2)))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [0, 1] and len(results) == 8 and len(set(results)) == 2


def test_a_value_that_could_not_be_made_is_tried_again() -> None:
    values: Once[int] = Once()
    with pytest.raises(ZeroDivisionError):
        values.get("a", lambda: 1 // 0)
    assert values.get("a", lambda: 3) == 3 and values.get("a", lambda: 4) == 3
    values.clear()
    assert values.get("a", lambda: 4) == 4
