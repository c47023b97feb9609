"""Fork-join latency: what a parallel loop costs beyond its work.

In: `python benchmarks/fork_join.py [--threads 2]`. Out: median and best microseconds inline and in the pool, with empty
and with busy iterations, measured in turns in one run. The body is compiled here with the system's C compiler; the loop
over calls is native.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
from pathlib import Path

from processes import count, thread_count

from armillary.contrib.cc import get_cc
from armillary.runtime.native_library import ErrorText, native

BODY = """
#include <stdint.h>
#include <time.h>
typedef int32_t (*run_fn)(void *, void *, void *const *, const int64_t *, int64_t, int);
int32_t empty(void *const *d, const int64_t *v, int64_t b, int64_t e, int64_t t) { return 0; }
int32_t busy(void *const *d, const int64_t *v, int64_t b, int64_t e, int64_t t) {
  uint64_t x = 3; /* in a register: memory written and read again takes 2 to 5 cycles, by chance */
  for (int64_t i = 0; i < 5000 * (e - b); i++) {
    x = x * x + 1;
    __asm__ volatile("" : "+r"(x));
  }
  return 0;
}
double measure(run_fn run, void *pool, int64_t extent, int threads, int64_t count, int work) {
  void *body = work ? (void *)busy : (void *)empty;
  struct timespec a, b;
  for (int64_t i = 0; i < count / 4; i++) run(pool, body, 0, 0, extent, threads); /* wake the workers */
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int64_t i = 0; i < count; i++) run(pool, body, 0, 0, extent, threads);
  clock_gettime(CLOCK_MONOTONIC, &b);
  return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / count * 1e-3;
}
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=thread_count, default=2, help="default: 2")
    parser.add_argument("--calls", type=count, default=20_000, help="of each case in a round (default: 20000)")
    parser.add_argument("--rounds", type=count, default=15, help="default: 15")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "body.c", Path(folder) / "body.so"
        source.write_text(BODY)
        subprocess.run([*get_cc(), "-O2", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
        body = ctypes.CDLL(str(library))
    body.measure.restype = ctypes.c_double
    number = ctypes.c_int64
    body.measure.argtypes = (ctypes.c_void_p, ctypes.c_void_p, number, ctypes.c_int, number, ctypes.c_int)
    pool = native().arm_pool_create(options.threads, 0, *ErrorText().args)
    run = ctypes.cast(native().arm_pool_run, ctypes.c_void_p)
    cases = {  # name -> (iterations, threads, whether an iteration works)
        "empty, inline": (options.threads, 1, 0),
        "empty, pool": (options.threads, options.threads, 0),
        "one busy iteration, inline": (1, 1, 1),
        "one busy iteration per thread, pool": (options.threads, options.threads, 1),
    }
    results: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, (extent, threads, work) in cases.items():
            calls = options.calls // 20 if work else options.calls
            results[name].append(body.measure(run, pool, extent, threads, calls, work))
    for name, times in results.items():
        print(f"{name:36s} median {statistics.median(times):8.3f} us   best {min(times):8.3f} us")
    base, forked = (statistics.median(list(results.values())[i]) for i in (2, 3))
    print(f"fork-join overhead with {options.threads} threads: {forked - base:.3f} us")
    native().arm_pool_destroy(pool)


if __name__ == "__main__":
    main()
