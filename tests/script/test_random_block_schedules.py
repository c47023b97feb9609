"""Random schedules over blocks: what is not refused computes what numpy does, and its trace repeats it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError

Program = tuple[tir.PrimFunc, list[tuple[int, ...]], Callable[..., np.ndarray]]
SCOPES = ["global", "local"]


def _product() -> Program:
    k = te.reduce_axis((0, 12), "k")
    a, b = te.placeholder((8, 12), name="a"), te.placeholder((12, 16), name="b")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((8, 16), lambda i, j: te.max(c[i, j], 2.0) + a[i, 0], name="d")
    func = te.create_prim_func([a, b, d])
    return func, [(8, 12), (12, 16), (8, 16)], lambda x, y: np.maximum(x @ y, 2) + x[:, :1]


def _line() -> Program:
    k = te.reduce_axis((0, 3), "k")
    a, w = te.placeholder((2, 10), name="a"), te.placeholder((3,), name="w")
    zero = te.const(0, "float32")
    p = te.compute((2, 12), lambda n, i: te.if_then_else(te.all(i >= 1, i < 11), a[n, i - 1], zero), name="p")
    c = te.compute((2, 10), lambda n, i: te.sum(p[n, i + k] * w[k], axis=k), name="c")
    func = te.create_prim_func([a, w, c])

    def run(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        wide = np.pad(x, ((0, 0), (1, 1)))
        return sum(wide[:, k : k + 10] * y[k] for k in range(3))

    return func, [(2, 10), (3,), (2, 10)], run


def _chain() -> Program:
    a, b = te.placeholder((6, 9), name="a"), te.placeholder((6, 9), name="b")
    s = te.compute((6, 9), lambda i, j: a[i, j] + b[i, j], name="s")
    t = te.compute((6, 9), lambda i, j: s[i, j // 2] * 2.0 + s[5 - i, j], name="t")
    u = te.compute((6, 9), lambda i, j: t[i, j] - a[i, j], name="u")

    def run(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        total = x + y
        return total[:, np.arange(9) // 2] * 2 + total[::-1] - x

    return te.create_prim_func([a, b, u]), [(6, 9), (6, 9), (6, 9)], run


class _Steps:
    """One random primitive after another."""

    def __init__(self, schedule: tir.Schedule, rng: random.Random) -> None:
        self.s, self.rng = schedule, rng

    def block(self) -> tir.schedule.BlockRV:
        blocks = self.s.get_child_blocks(self.s.get_block("root"))
        return self.rng.choice(blocks)

    def loops(self) -> list[tir.schedule.LoopRV]:
        loops = self.s.get_loops(self.block())
        if not loops:
            raise ScheduleError("no loops")
        return loops

    def loop(self) -> tir.schedule.LoopRV:
        return self.rng.choice(self.loops())

    def step(self) -> None:
        getattr(self, self.rng.choice([n for n in dir(self) if n.startswith("do_")]))()

    def do_split(self) -> None:
        self.s.split(self.loop(), [None, self.rng.choice([1, 2, 3, 4])])

    def do_sampled_split(self) -> None:
        loop = self.loop()
        self.s.split(loop, self.s.sample_perfect_tile(loop, n=self.rng.choice([2, 3]), max_innermost_factor=4))

    def do_categorical(self) -> None:
        loop = self.loop()
        size = self.s.sample_categorical([2, 3, 4], [0.2, 0.3, 0.5])
        self.s.split(loop, [None, size + 1])

    def do_location(self) -> None:
        block = self.block()
        self.s.compute_at(block, self.s.sample_compute_location(block))

    def do_fuse(self) -> None:
        loops = self.loops()
        k = self.rng.randrange(len(loops))
        self.s.fuse(*loops[k : k + 2])

    def do_reorder(self) -> None:
        loops = self.loops()
        self.s.reorder(*self.rng.sample(loops, k=min(len(loops), 3)))

    def do_partition(self) -> None:
        self.s.loop_partition(self.loop(), [self.rng.choice([1, 2, 3]), self.rng.choice([None, 1])])

    def do_merge(self) -> None:
        self.s.merge(self.loop(), self.loop())

    def do_unit(self) -> None:
        self.s.add_unit_loop(self.rng.choice([self.loop(), self.block()]))

    def do_axes(self) -> None:
        block = self.block()
        order = list(range(len(self.s.get(block).iter_vars)))
        self.rng.shuffle(order)
        self.s.reorder_block_iter_var(block, order)

    def do_mark(self) -> None:
        getattr(self.s, self.rng.choice(["parallel", "vectorize", "unroll"]))(self.loop())

    def do_inline(self) -> None:
        getattr(self.s, self.rng.choice(["compute_inline", "reverse_compute_inline"]))(self.block())

    def do_at(self) -> None:
        getattr(self.s, self.rng.choice(["compute_at", "reverse_compute_at"]))(self.block(), self.loop())

    def do_cache(self) -> None:
        name = self.rng.choice(["cache_read", "cache_write", "cache_inplace"])
        getattr(self.s, name)(self.block(), self.rng.choice([0, 1]), self.rng.choice(SCOPES))

    def do_cache_at(self) -> None:
        block = self.block()
        loop = self.rng.choice(self.s.get_loops(block))
        getattr(self.s, self.rng.choice(["read_at", "write_at"]))(loop, block, self.rng.choice([0, 1]), "local")

    def do_cache_index(self) -> None:
        self.s.cache_index(self.block(), "global", self.rng.choice([0, 1]))

    def do_reindex(self) -> None:
        self.s.reindex(self.block(), (self.rng.choice(["read", "write"]), self.rng.choice([0, 1])))

    def do_reindex_cache(self) -> None:
        name, block = self.rng.choice(["reindex_cache_read", "reindex_cache_write"]), self.block()
        if self.rng.random() < 0.5:
            getattr(self.s, name)(block, 0, "global", lambda *v: (*v[1:], v[0]))
        else:
            getattr(self.s, name)(block, 0, "global", lambda *v: (v[0] // 2, *v[1:], v[0] % 2))

    def do_decompose(self) -> None:
        name = self.rng.choice(["decompose_reduction", "decompose_padding"])
        block = self.block()
        getattr(self.s, name)(block, self.rng.choice(self.s.get_loops(block)))

    def do_rfactor(self) -> None:
        self.s.rfactor(self.loop(), self.rng.choice([0, 1]))

    def do_layout(self) -> None:
        self.s.transform_layout(self.block(), ("write", 0), lambda *v: (*v[1:], v[0]))

    def do_block_layout(self) -> None:
        maps = [lambda *v: (*v[1:], v[0]), lambda *v: (v[0] // 2, v[0] % 2, *v[1:])]
        self.s.transform_block_layout(self.block(), self.rng.choice(maps))

    def do_blockize(self) -> None:
        self.s.blockize(self.loop())

    def do_pad(self) -> None:
        block = self.block()
        self.s.pad_einsum(block, [self.rng.choice([1, 3, 4]) for _ in self.s.get(block).iter_vars])

    def do_type(self) -> None:
        self.s.unsafe_set_dtype(self.block(), 0, "float64")

    def do_align(self) -> None:
        self.s.storage_align(self.block(), 0, self.rng.choice([0, -1]), 4, 1)


def run_one(seed: int, steps: int = 8) -> list[str]:
    """Build a random schedule, compare with numpy, repeat its trace; what was done."""
    rng = random.Random(seed)
    func, shapes, reference = rng.choice([_product, _line, _chain])()
    schedule = tir.Schedule(func, seed=seed)
    actions = _Steps(schedule, rng)
    for _ in range(steps):
        try:
            actions.step()
        except (ScheduleError, IndexError) as error:
            if isinstance(error, IndexError) and "empty sequence" not in str(error):
                raise
    values = np.random.default_rng(seed)
    inputs = [values.random(shape, dtype=np.float32) for shape in shapes[:-1]]
    wanted = reference(*inputs)
    again = tir.Schedule(func)
    schedule.trace.apply_to_schedule(again)
    assert str(again.mod) == str(schedule.mod), "the trace does something else"
    out = np.full(shapes[-1], np.nan, np.float32)
    armillary.build(schedule.mod, target="llvm")(*inputs, out)
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=1e-5, err_msg="\n".join(schedule.trace.as_python()))
    return [inst.kind.method for inst in schedule.trace.insts if not inst.kind.is_pure]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_not_refused_computes_the_same(seed: int) -> None:
    run_one(seed)


if __name__ == "__main__":
    import sys
    from collections import Counter

    done: Counter[str] = Counter()
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            done.update(run_one(number))
        except Exception as error:
            print("seed", number, type(error).__name__, str(error)[-1500:])
            raise
    print(done)
