"""An inference allocates nothing and leaves other threads alone; loading holds little more than what stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import e2e_models as models
import numpy as np
import pytest

from armillary.contrib.cc import get_cc
from armillary.driver.library import GraphLibrary
from armillary.runtime import load_module

ROOT = Path(__file__).resolve().parents[2]
COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
static _Atomic long calls;
#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { calls++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { calls++; return __libc_realloc(p, n); }
int posix_memalign(void **p, size_t a, size_t n) { calls++; return (*p = __libc_memalign(a, n)) ? 0 : 12; }
void *mmap(void *p, size_t n, int a, int b, int c, off_t d) { calls++; return NEXT(mmap)(p, n, a, b, c, d); }
__attribute__((destructor)) static void tell(void) { fprintf(stderr, "allocations: %ld\n", calls); }
"""
PEAK = """
import sys
import numpy as np
from armillary import runtime
executor = runtime.load_module(sys.argv[1])["default"](runtime.cpu(0))
executor.set_input("data", np.load(sys.argv[2]))
def peak():
    with open("/proc/self/status") as lines:
        return {l.split(":")[0]: int(l.split()[1]) for l in lines if l.startswith("Vm")}["VmHWM"]
before = peak()
for _ in range(20):
    executor.run()
    executor.get_output(0).numpy()
print(before, peak(), executor.memory_bytes // 1024)
"""


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[GraphLibrary, Path, dict[str, np.ndarray]]]:
    """Two small networks: library, package and inputs."""
    folder = tmp_path_factory.mktemp("networks")
    made = {}
    for name, options in (
        ("resnet", {"num_layers": 8, "image_shape": (3, 28, 28), "num_classes": 20}),
        ("squeezenet", {"image_shape": (3, 64, 64), "num_classes": 20}),
    ):
        module, params, inputs = models.workload(name, batch_size=1, **options)
        library = models.compiled(module, params)
        library.export_library(folder / f"{name}.tar")
        np.save(folder / f"{name}.npy", inputs["data"])
        made[name] = (library, folder / f"{name}.tar", inputs)
    return made


def test_a_hundred_inferences_allocate_as_often_as_one(
    networks: dict[str, tuple[GraphLibrary, Path, dict[str, np.ndarray]]], runner: Path, tmp_path: Path
) -> None:
    (tmp_path / "count.c").write_text(COUNTER)
    counter = tmp_path / "count.so"
    subprocess.run([*get_cc(), "-O1", "-shared", "-fPIC", "-o", counter, tmp_path / "count.c", "-ldl"], check=True)
    counts = []
    for runs in (1, 100):  # the sort of more times than that allocates
        done = subprocess.run(
            [str(runner), f"--model={networks['resnet'][1]}", "--threads=2", f"--run-count={runs}", "--dry-run=1"],
            env={"LD_PRELOAD": str(counter)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        counts.append([line for line in done.stderr.splitlines() if line.startswith("allocations")])
    assert counts[0] == counts[1] and counts[0] and counts[0] != ["allocations: 0"]


def test_package_is_the_weights_and_little_more(
    networks: dict[str, tuple[GraphLibrary, Path, dict[str, np.ndarray]]],
) -> None:
    for library, path, _ in networks.values():
        weights = sum(value.nbytes for value in library.get_params().values())
        kernels = sum(len(code) for code in library.objects)
        assert path.stat().st_size < 1.05 * weights + 2 * kernels + 100_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_python_inferences_do_not_grow_the_process(
    networks: dict[str, tuple[GraphLibrary, Path, dict[str, np.ndarray]]],
) -> None:
    _, path, _ = networks["resnet"]
    environment = {"PYTHONPATH": str(ROOT), "ARMILLARY_NUM_THREADS": "2", "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), str(path.with_suffix(".npy"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, after, planned = map(int, done.stdout.split())
    assert after - before < planned + 4096, f"{before} kB before the first run, {after} kB after twenty"


def test_four_threads_run_two_networks_and_all_get_right_answers(
    networks: dict[str, tuple[GraphLibrary, Path, dict[str, np.ndarray]]],
) -> None:
    loaded = {name: load_module(path) for name, (_, path, _) in networks.items()}
    want = {name: models.run(library, inputs).tobytes() for name, (library, _, inputs) in networks.items()}
    wrong: list[str] = []
    done: list[str] = []

    def serve(k: int) -> None:
        name = ("resnet", "squeezenet")[k % 2]
        executor = loaded[name]["default"]()
        for _ in range(10):
            executor.set_input("data", networks[name][2]["data"])
            executor.run()
            (done if executor.get_output(0).numpy().tobytes() == want[name] else wrong).append(name)

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and len(done) == 40


def test_other_python_threads_run_during_an_inference(
    networks: dict[str, tuple[GraphLibrary, Path, dict[str, np.ndarray]]],
) -> None:
    library, _, inputs = networks["resnet"]
    executor = library["default"]()
    executor.set_input("data", inputs["data"])
    executor.run()
    number = max(3, int(0.2 / executor.time(1)))
    call = threading.Thread(target=executor.time, args=(number,))  # one native call of some tenths of a second
    call.start()
    steps = 0
    while call.is_alive():
        steps += 1
    call.join()
    assert steps > 100, "the interpreter's lock was held during the call"
