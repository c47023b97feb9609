"""Every `CL…` function of the compute library on this machine's OpenCL device, and runs of the tuner; without pytest.

Run: `python -m benchmarks.compute_opencl [--seconds 50] [--cases 50] [--jobs 4] [--names Gaussian3x3,Scale] [--skip 0]
[--tuner-seconds 20] [--state FILE]` from the root of the source. In: the random cases of the tests. Out: a line for
each function (cases, how many agree, what is wrong), a table of the tuner, and status 1 where something disagrees.
Invariant: a case is compared with what Arm Compute Library 20.08 gave, and with the `NE…` function here; the first case
of every function comes before the second one of any. With a state file calls add up: a case that is in it, of this
device, is not run again (`compute_opencl_state.py`).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from armillary import compute  # noqa: E402 - beside this script
from armillary.compute import BorderMode, CLImage, CLScheduler, CLTuner, Format, Image, TensorInfo  # noqa: E402
from benchmarks.compute_opencl_state import Pair, State  # noqa: E402
from tests.compute.acl_oracle.check import check_stored, near, near_numbers  # noqa: E402
from tests.compute.acl_oracle.record import BUILDERS, COUNT, case_of, has_near_numbers, inside  # noqa: E402

CANNY = "NECannyEdge"  # has no stored cases: compared with the CPU's, which is compared with OpenCV
TUNED = ("Gaussian5x5", "Sobel3x3", "Dilate", "Median3x3")
SIZE, TURNS = (1920, 1080), 30
GRACE = 20  # seconds that running cases have to end
TOLD = 5  # seconds from one line of progress to the next


def canny(side: str, number: int) -> np.ndarray[Any, Any]:
    """Edges of a random image of smooth blobs."""
    rng = np.random.default_rng(number)
    width, height = int(rng.integers(24, 90)), int(rng.integers(24, 60))
    blobs = rng.integers(0, 256, (height // 6 + 2, width // 6 + 2)).repeat(6, 0).repeat(6, 1)
    kind = CLImage if side == "CL" else Image
    source, edges = kind(), kind()
    for image in (source, edges):
        image.allocator().init(TensorInfo(width, height, Format.U8))
    function = getattr(compute, f"{side}CannyEdge")()
    function.configure(source, edges, 120, 40, 3 + 2 * (number % 2), 1 + number // 2 % 2, BorderMode.REPLICATE)
    for image in (source, edges):
        image.allocator().allocate()
    source.write(blobs[:height, :width].astype(np.uint8))
    function.run()
    return np.array(edges.read())


def against_cpu(name: str, number: int) -> None:
    """The device's function gives what the CPU's gives."""
    cases = case_of(name, number), case_of(name, number)
    cases[0].side, cases[0].padding = "CL", _padding(number)
    here, cpu = (case.ours(case) for case in cases)
    case, told = cases[1], f"{name} {number}"
    assert here.region == cpu.region or not case.has_region, f"{told}: another valid region"
    if has_near_numbers(case):
        near_numbers(case, here.numbers, np.asarray(cpu.numbers), told)
    else:
        assert here.numbers == cpu.numbers, f"{told}: other numbers"
    for found, wanted in zip(here.outputs, cpu.outputs, strict=True):
        near(case, *(inside(v, cpu.region, case) for v in (found, wanted)), told)


def _padding(number: int) -> int:
    """Every second case has strides of its own."""
    return number if number % 2 else 0


def check(pair: Pair) -> list[str]:
    """What is wrong with a case."""
    name, number = pair
    CLScheduler.get().default_init()
    if name == CANNY:
        return (
            [] if np.array_equal(canny("CL", number), canny("NE", number)) else [f"CPU: {name} {number}: other edges"]
        )
    wrong = []
    stored = functools.partial(check_stored, side="CL", padding=_padding(number))
    for told, against in (("library", stored), ("CPU", against_cpu)):
        try:
            against(*pair)
        except Exception as error:  # whatever a driver makes of it, the other cases go on
            wrong.append(f"{told}: {type(error).__name__}: {str(error)[:200]}")
    return wrong


def check_all(names: Sequence[str], cases: range, jobs: int, seconds: float, state: State) -> bool:
    """Cases of all functions until the time is over; what is wrong at once, then a line for each function."""
    every = [(name, number) for number in cases for name in names]
    left = [pair for pair in every if pair not in state.cases]
    start = told_at = time.monotonic()
    print(f"{len(every)} cases, {len(every) - len(left)} of them in the state file", flush=True)
    for done, (pair, told) in enumerate(checked(iter(left), jobs, seconds), 1):
        state.add_case(pair, told)
        print("".join(f"    {line}\n" for line in told), end="", flush=bool(told))
        if done == 1 or time.monotonic() > told_at + TOLD:
            told_at = time.monotonic()
            print(f"{told_at - start:5.0f} s: {done} of {len(left)} cases, {pair[0]} {pair[1]} last", flush=True)
    return summary(names, every, state)


def summary(names: Sequence[str], every: Sequence[Pair], state: State) -> bool:
    """A line for each function; whether each was reached and none differs."""
    print(f"{'':46} run agree differ")
    run, good = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pair in every:
        if pair in state.cases:
            run[pair[0]] += 1
            good[pair[0]] += not state.cases[pair]
    for name in names:
        differ = [str(n) for each, n in every if each == name and state.cases.get((each, n))]
        told = f": cases {', '.join(differ)}" if differ else "" if run[name] else "  not reached"
        print(f"CL{name.removeprefix('NE').removeprefix('CPP'):44} {run[name]:3} {good[name]:5} {len(differ):6}{told}")
    ran, agree, reached = sum(run.values()), sum(good.values()), sum(map(bool, run.values()))
    print(f"{ran} of {len(every)} cases run, {agree} agree, {ran - agree} differ; {reached} of {len(names)} lists")
    return ran == agree and reached == len(names)


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))


def checked(pairs: Iterator[Pair], jobs: int, seconds: float) -> Iterator[tuple[Pair, list[str]]]:
    """Cases with what is wrong with them, as they end; those that run when the time is over have a while to end.

    Where a driver ends a process, the cases that ran are run once more, one by one, to know which it was.
    """
    end = time.monotonic() + seconds
    pool, suspects = _pool(jobs), list[Pair]()
    running: dict[Future[list[str]], Pair] = {}
    while time.monotonic() < end + GRACE:
        while len(running) < 2 * jobs and time.monotonic() < end and (pair := next(pairs, None)):
            try:
                running[pool.submit(check, pair)] = pair
            except BrokenExecutor:
                pool, pairs = _pool(jobs), itertools.chain([pair], pairs)
        if not running:
            break
        for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
            pair, error = running.pop(future), future.exception()
            if isinstance(error, BrokenExecutor):
                suspects.append(pair)
            else:
                yield pair, future.result() if error is None else [f"{type(error).__name__}: {error}"]
    for pair in running.values():
        print(f"    not ended in time: {pair[0]} {pair[1]}", flush=True)
    _stop(pool, is_busy=bool(running))
    yield from alone(suspects, end + GRACE)


def alone(suspects: Sequence[Pair], end: float) -> Iterator[tuple[Pair, list[str]]]:
    """Cases each in a process of its own."""
    for pair in suspects:
        pool = _pool(1)
        future = pool.submit(check, pair)
        is_done = bool(wait([future], timeout=max(1, end - time.monotonic())).done)
        if is_done:
            error = future.exception()
            yield pair, future.result() if error is None else [f"the process ended: {error}"]
        else:
            print(f"    not ended in time: {pair[0]} {pair[1]}", flush=True)
        _stop(pool, is_busy=not is_done)


def _stop(pool: ProcessPoolExecutor, is_busy: bool) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes if is_busy else ():
        process.kill()


def _filter(name: str, side: str, pixels: np.ndarray[Any, Any]) -> tuple[Any, Any]:  # Any: a function, its output
    kind, format_of = (CLImage if side == "CL" else Image), (Format.S16 if name == "Sobel3x3" else Format.U8)
    images = [kind() for _ in range(3 if name == "Sobel3x3" else 2)]
    for image, wanted in zip(images, (Format.U8, format_of, format_of), strict=False):
        image.allocator().init(TensorInfo(*SIZE, wanted))
    function = getattr(compute, side + name)()
    function.configure(*images, BorderMode.REPLICATE)
    for image in images:
        image.allocator().allocate()
    images[0].write(pixels)
    return function, images[1]


def _least(function: Any) -> float:  # Any: see `_filter`
    device = CLScheduler.get().queue().device
    return min(device.kernel_seconds(function.run) or float("inf") for _ in range(TURNS))


def tune(seconds: float, state: State) -> bool:
    """Tune filters, read the file back into another tuner, and time both ways in turns."""
    end = time.monotonic() + seconds
    pixels = np.random.default_rng(0).integers(0, 256, SIZE[::-1], np.uint8)
    print(
        f"tuner, {SIZE[0]}x{SIZE[1]}, least times of kernels in us\n{'':12} (64, 1, 1)     tuned  ratio  LWS",
        flush=True,
    )
    is_equal = True
    for name in TUNED:
        if time.monotonic() < end and name not in state.tuned:
            usual, tuned, lws, is_right = tune_one(name, pixels)
            is_equal &= is_right
            state.add_tuned(name, usual, tuned, lws)
        if name in state.tuned:
            usual, tuned, lws = state.tuned[name]
            print(f"{name:12} {usual * 1e6:10.0f} {tuned * 1e6:9.0f}  {tuned / usual:5.2f}  {lws}", flush=True)
    CLScheduler.get().set_tuner(None)
    print(f"the file is read back and the CPU's bytes come out: {'yes' if is_equal else 'NO'}")
    best = min((tuned / usual for usual, tuned, _ in state.tuned.values()), default=1.0)
    print(f"best ratio {best:.2f}: {'a kernel is' if best < 0.97 else 'NO kernel is'} faster tuned", flush=True)
    return is_equal and best < 0.97


def tune_one(name: str, pixels: np.ndarray[Any, Any]) -> tuple[float, float, str, bool]:
    """Seconds without and with what a file has kept, the LWS, and whether file and bytes are right."""
    scheduler, (function, output) = CLScheduler.get(), _filter(name, "CL", pixels)
    tuner, again = CLTuner(), CLTuner(tune_new_kernels=False)
    scheduler.set_tuner(tuner)
    function.run()
    with tempfile.TemporaryDirectory() as folder:
        tuner.save_to_file(Path(folder) / "tuned.csv")
        again.load_from_file(Path(folder) / "tuned.csv")
    times = [float("inf"), float("inf")]
    for _ in range(3):
        for n, each in enumerate((None, again)):
            scheduler.set_tuner(each)
            times[n] = min(times[n], _least(function))
    reference, wanted = _filter(name, "NE", pixels)
    reference.run()
    is_right = again.lws_table() == tuner.lws_table() and np.array_equal(output.read(), wanted.read())
    return times[0], times[1], ", ".join(map(str, again.lws_table().values())), is_right


def main() -> int:
    """Check, then tune."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=50, help="when no case is begun any more")
    parser.add_argument("--cases", type=int, default=COUNT, help=f"cases of each function, at most {COUNT}")
    parser.add_argument("--jobs", type=int, default=4, help="processes")
    parser.add_argument("--names", default="", help="functions, without NE or CL, with commas; all unless given")
    parser.add_argument("--skip", type=int, default=0, help="the first case's number")
    parser.add_argument("--tuner-seconds", type=float, default=20, help="when no filter is tuned any more; 0: no tuner")
    parser.add_argument("--state", type=Path, help="a file that keeps what was found, so that calls add up")
    given = parser.parse_args()
    chosen = [name if name in BUILDERS else f"NE{name}" for name in given.names.split(",") if name]
    if unknown := [name for name in chosen if name not in (*BUILDERS, CANNY)]:
        parser.error(f"no function is called {', '.join(unknown)}; there are {', '.join((*BUILDERS, CANNY))}")
    CLScheduler.get().default_init()
    device = str(CLScheduler.get().target())
    print(f"device: {device}", flush=True)
    state = State(given.state, device)
    numbers = range(given.skip, min(given.skip + given.cases, COUNT))
    is_good = check_all(chosen or [*BUILDERS, CANNY], numbers, given.jobs, given.seconds, state)
    return 0 if (not given.tuner_seconds or tune(given.tuner_seconds, state)) and is_good else 1


if __name__ == "__main__":
    sys.exit(main())
