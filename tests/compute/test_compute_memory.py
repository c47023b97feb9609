"""The memory manager: lifetimes that share, pools for threads, misuse."""

from __future__ import annotations

import ctypes
import mmap
import random
import threading

import numpy as np
import pytest

from armillary import compute
from armillary.compute import (
    Allocator,
    BlobLifetimeManager,
    Format,
    Image,
    MemoryGroup,
    MemoryManagerOnDemand,
    OffsetLifetimeManager,
    PoolManager,
    Tensor,
    TensorInfo,
)
from armillary.compute.core.tensor_info import READ_BEHIND
from armillary.errors import ConfigError, ExecutionError
from tests.compute.acl_oracle import memory_cases


class GuardedAllocator:
    """Memory that ends where a page begins that nobody may read."""

    def allocate(self, size: int, alignment: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        """So many bytes, filled up to the alignment."""
        whole = -(-size // alignment) * alignment
        pages = -(-whole // mmap.PAGESIZE) * mmap.PAGESIZE
        region = mmap.mmap(-1, pages + mmap.PAGESIZE)
        block = np.frombuffer(region, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(block.ctypes.data + pages), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        return block[pages - whole : pages - whole + size]

    def free(self, memory: object) -> None:
        """Python takes it back when nobody uses it."""


@pytest.mark.parametrize("kind", [BlobLifetimeManager, OffsetLifetimeManager])
def test_colours_read_nothing_behind_the_memory_of_another_allocator(kind: type) -> None:
    """Vectors of the last row read behind an image that is smaller than the output."""
    rng, mm = np.random.default_rng(0), _manager(kind)
    group, plain, managed = MemoryGroup(mm), [], []
    for tensors in (plain, managed):
        tensors += [Image(), Image(), compute.NEColorConvert()]
        for image, pixels in zip(tensors, (Format.UYVY422, Format.RGB888), strict=False):
            image.allocator().init(TensorInfo(8, 32, pixels))
    group.manage(managed[0])
    for source, target, function in (plain, managed):
        function.configure(source, target)
        source.allocator().allocate()
        target.allocator().allocate()
    mm.populate(GuardedAllocator(), 1)
    values = rng.integers(0, 256, plain[0].array().shape, np.uint8)
    with group:
        for source, _, function in (plain, managed):
            source.array()[...] = values
            function.run()
    np.testing.assert_array_equal(plain[1].array(), managed[1].array())


MANAGERS = [BlobLifetimeManager, OffsetLifetimeManager]


def _manager(kind: type = BlobLifetimeManager) -> MemoryManagerOnDemand:
    return MemoryManagerOnDemand(kind(), PoolManager())


def _image(width: int = 64, height: int = 48) -> Image:
    image = Image()
    image.allocator().init(TensorInfo(width, height, Format.U8))
    return image


@pytest.mark.parametrize("kind", MANAGERS)
def test_the_listing_of_the_text_needs_two_tensors_for_three(kind: type) -> None:
    mm = _manager(kind)
    group = MemoryGroup(mm)
    tmp1, tmp2, tmp3 = _image(), _image(), _image()
    group.manage(tmp1)
    group.manage(tmp2)
    tmp1.allocator().allocate()
    group.manage(tmp3)
    tmp2.allocator().allocate()
    tmp3.allocator().allocate()
    mm.set_allocator(Allocator())
    mm.set_num_pools(2)
    mm.finalize()
    assert mm.lifetime_manager().total_size() == 2 * 64 * 48
    group.acquire()
    tmp1.array()[...] = 1
    tmp2.array()[...] = 2
    tmp3.array()[...] = 3
    assert (tmp1.array() == 3).all(), "tmp3 lies where tmp1 lay"
    assert (tmp2.array() == 2).all()
    group.release()


@pytest.mark.parametrize("kind", MANAGERS)
def test_tensors_that_are_needed_at_once_never_overlap(kind: type) -> None:
    for seed in range(150):
        rng = random.Random(seed)
        mm, peaks, sums = _manager(kind), [], []
        groups = []
        for _ in range(rng.randrange(1, 4)):
            group, tensors, alive = MemoryGroup(mm), [], []
            now = peak = 0
            for _ in range(rng.randrange(1, 20)):
                if alive and rng.random() < 0.45:
                    ended = alive.pop(rng.randrange(len(alive)))
                    tensors[ended][2] = len(tensors)
                    tensors[ended][0].allocator().allocate()
                    now -= tensors[ended][0].info().total_size()
                else:
                    image = _image(rng.randrange(1, 500), rng.randrange(1, 9))
                    group.manage(image)
                    alive.append(len(tensors))
                    tensors.append([image, len(tensors), 0])
                    now += image.info().total_size()
                    peak = max(peak, now)
            for one in alive:
                tensors[one][2] = len(tensors)
                tensors[one][0].allocator().allocate()
            peaks.append(peak)
            sums.append(sum(t.info().total_size() + 63 for t, _, _ in tensors))
            groups.append((group, tensors))
        mm.populate(Allocator(), 1)
        assert max(peaks) <= mm.lifetime_manager().total_size() <= max(sums) * 3, seed
        for group, tensors in groups:
            with group:
                places = [(t.buffer().ctypes.data, t.info().total_size(), a, b) for t, a, b in tensors]
                for i, (at, size, a, b) in enumerate(places):
                    for other_at, other_size, c, d in places[:i]:
                        if a < d and c < b:
                            assert at + size <= other_at or other_at + other_size <= at, seed


def test_networks_take_what_is_needed_at_once() -> None:
    for name, events_of in memory_cases.NETWORKS.items():
        events = events_of()
        for kind in MANAGERS:
            total = memory_cases.ours(events, kind)
            assert total == memory_cases.peak(events) <= 1.05 * min(memory_cases.RECORDED[name]), (name, kind)


@pytest.mark.parametrize("times", [100, pytest.param(25_000, marks=pytest.mark.slow)])
def test_four_threads_with_four_pools_run_one_configuration(times: int) -> None:
    mm = _manager()
    group, between, source = MemoryGroup(mm), [_image() for _ in range(3)], _image()
    functions = [compute.NEGaussian3x3(), compute.NEErode(), compute.NEMedian3x3()]
    steps = [source, *between]
    for function, a, b in zip(functions, steps, steps[1:], strict=False):
        group.manage(b)
        function.configure(a, b, compute.BorderMode.REPLICATE)
        if a is not source:
            a.allocator().allocate()
    between[-1].allocator().allocate()
    source.allocator().allocate()
    source.array()[...] = np.random.default_rng(0).integers(0, 256, source.array().shape, np.uint8)
    mm.populate(Allocator(), 4)
    wanted: list[bytes] = []
    wrong: list[str] = []

    def run(times: int) -> None:
        for _ in range(times):
            with group:
                for image in between:
                    image.buffer()[...] = 0xA5
                for function in functions:
                    function.run()
                got = between[-1].array().tobytes()
            if not wanted:
                wanted.append(got)
            if got != wanted[0]:
                wrong.append("other bytes")

    before = compute.Scheduler.get()
    compute.Scheduler.set("ST")
    try:
        run(1)
        threads = [threading.Thread(target=run, args=(times,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        compute.Scheduler.set(before)
    assert not wrong
    mm.clear()
    assert mm.pool_manager().num_pools() == 0


def test_a_pool_is_waited_for() -> None:
    mm, seen = _manager(), []
    group, image = MemoryGroup(mm), _image()
    group.manage(image)
    image.allocator().allocate()
    mm.populate(Allocator(), 1)
    group.acquire()

    def second() -> None:
        group.acquire()
        seen.append("second")
        group.release()

    thread = threading.Thread(target=second)
    thread.start()
    thread.join(0.05)
    assert seen == []
    group.release()
    thread.join(10)
    assert seen == ["second"]


def test_without_a_manager_tensors_allocate_at_once() -> None:
    group, image = MemoryGroup(), _image()
    group.manage(image)
    image.allocator().allocate()
    group.acquire()
    assert image.buffer().size == 64 * 48
    group.release()


def test_an_allocator_of_the_users_own_gives_the_memory() -> None:
    class Counting(Allocator):
        allocated, freed = 0, 0

        def allocate(self, size: int, alignment: int = 64) -> np.ndarray:
            self.allocated += size
            return super().allocate(size, alignment)

        def free(self, memory: np.ndarray) -> None:
            self.freed += memory.size

    mm, mine = _manager(OffsetLifetimeManager), Counting()
    group, image = MemoryGroup(mm), _image()
    group.manage(image)
    image.allocator().allocate()
    mm.populate(mine, 3)
    assert (mine.allocated, mine.freed) == (3 * (64 * 48 + READ_BEHIND), 0)
    mm.clear()
    assert mine.freed == mine.allocated


def test_misuse_is_refused() -> None:
    mm = _manager()
    group, image = MemoryGroup(mm), _image()
    group.manage(image)
    with pytest.raises(ExecutionError, match="64x48 U8 belongs to a memory group already"):
        group.manage(image)
    with pytest.raises(ExecutionError, match="no allocator"):
        mm.finalize()
    mm.set_allocator(Allocator())
    with pytest.raises(ExecutionError, match="have not ended: the tensor 64x48 U8"):
        mm.finalize()
    with pytest.raises(ExecutionError, match="another one has lifetimes"):
        MemoryGroup(mm).manage(_image())
    image.allocator().allocate()
    with pytest.raises(ExecutionError, match="allocated already"):
        image.allocator().allocate()
    with pytest.raises(ExecutionError, match="not finalized"):
        group.acquire()
    with pytest.raises(ConfigError, match="0 pools"):
        mm.set_num_pools(0)
    mm.finalize()
    with pytest.raises(ExecutionError, match="finalized already"):
        mm.finalize()
    with pytest.raises(ExecutionError, match="managed after"):
        group.manage(_image())
    with pytest.raises(ExecutionError, match="only while its memory group is acquired"):
        image.buffer()
    with pytest.raises(ExecutionError, match="not acquired"):
        group.release()
    group.acquire()
    with pytest.raises(ExecutionError, match="acquired already"):
        group.acquire()
    with pytest.raises(ExecutionError, match="in use"):
        mm.clear()
    group.release()
    allocated = Tensor()
    allocated.allocator().init(TensorInfo(4, 4, Format.U8))
    allocated.allocator().allocate()
    with pytest.raises(ExecutionError, match="is allocated already"):
        MemoryGroup(_manager()).manage(allocated)
