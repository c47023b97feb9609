"""The text's scheduler: a kernel's window, split over threads (text: "Multi-threading")."""

import threading

import numpy as np

from armillary import compute
from armillary.compute import BorderMode, Format, IKernel, Image, TensorInfo, ThreadInfo, Window, cpu_info


class Thread:
    """A thread that runs one part of a window at a time."""

    def start(self, kernel: IKernel, window: Window, info: ThreadInfo) -> None:
        """Begin."""
        self.thread = threading.Thread(target=kernel.run, args=(window, info))
        self.thread.start()

    def wait(self) -> None:
        """Until it has ended."""
        self.thread.join()


class MyScheduler:
    """Splits every kernel over `_num_threads` threads, the calling one included."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._threads = [Thread() for _ in range(num_threads - 1)]

    def set_num_threads(self, num_threads: int) -> None:
        """As the constructor."""
        self.__init__(num_threads)

    def num_threads(self) -> int:
        """How many there are."""
        return self._num_threads

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """Run all of a kernel's window."""
        max_window = kernel.window()
        num_iterations = max_window.num_iterations(split_dimension)
        num_threads = min(num_iterations, self._num_threads)
        if num_iterations == 0:
            return
        if not kernel.is_parallelisable() or num_threads == 1:
            kernel.run(max_window, ThreadInfo(0, 1, cpu_info()))
            return
        t = 0
        for thread in self._threads[: num_threads - 1]:
            win = max_window.split_window(split_dimension, t, num_threads)
            thread.start(kernel, win, ThreadInfo(t, num_threads, cpu_info()))
            print(f"thread {t} of {num_threads}: rows {win.y().start()} to {win.y().end()}")
            t += 1
        # Run last part on main thread
        win = max_window.split_window(split_dimension, t, num_threads)
        print(f"thread {t} of {num_threads}: rows {win.y().start()} to {win.y().end()}")
        kernel.run(win, ThreadInfo(t, num_threads, cpu_info()))
        try:
            for thread in self._threads[: num_threads - 1]:
                thread.wait()
        except RuntimeError as e:
            print(f"Caught {type(e).__name__} meaning {e}")


def gaussian(scheduler: compute.IScheduler) -> np.ndarray:
    """A smoothed image, by a scheduler."""
    compute.Scheduler.set(scheduler)
    src, dst = Image(), Image()
    for image in (src, dst):
        image.allocator().init(TensorInfo(64, 50, Format.U8))
    gauss = compute.NEGaussian3x3()
    gauss.configure(src, dst, BorderMode.REPLICATE)
    src.allocator().allocate()
    dst.allocator().allocate()
    src.array()[...] = np.arange(50 * 64).reshape(50, 64) % 251
    gauss.run()
    return dst.array()


mine = gaussian(MyScheduler(3))
print(compute.Scheduler.get_type().value)
print("the same bytes:", np.array_equal(mine, gaussian(compute.SingleThreadScheduler.get())))

# Output:
# thread 0 of 3: rows 0 to 17
# thread 1 of 3: rows 17 to 34
# thread 2 of 3: rows 34 to 50
# CUSTOM
# the same bytes: True
