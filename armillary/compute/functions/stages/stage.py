"""Stages: kernels of a layer that are scheduled apart, each one loop over flat tensors of float32.

In: a `Stage`: what it reads and writes, its numbers, and a function that emits one iteration. Out: `stage_function`,
the loop for any sizes, and `StageKernel`, which binds it to tensors and numbers. Invariant: an iteration writes what no
other one does, so a scheduler may split the window (along X) anywhere; sizes are arguments, so a stage is compiled
once. Without Python: `ahead/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from armillary import tir
from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.core.compiled import PlaneTensor, bits_of
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.loop_kernel import CompiledLoops, NativeLoop
from armillary.compute.core.window import Dimension, Window
from armillary.tir import build as T
from armillary.tir.expr import Expr, Var
from armillary.tir.ir_builder import BufferVar, IRBuilder
from armillary.tir.stmt import PrimFunc

LANES = 16  # values at once: a vector of AVX-512, four of NEON
_FLOAT32 = "float32"


class Body:
    """What an iteration is emitted with: tensors and numbers by name, and the builder."""

    def __init__(self, stage: Stage) -> None:
        self.builder: IRBuilder = tir.ir_builder.create()
        sizes = [tir.decl_buffer((T.var(f"{name}_size"),), _FLOAT32, name=name) for name in stage.tensors]
        self.buffers = sizes
        self.tensors: dict[str, BufferVar] = {
            name: self.builder.buffer_ptr(buffer) for name, buffer in zip(stage.tensors, sizes, strict=True)
        }
        self.numbers: dict[str, Var] = {name: T.var(name) for name in stage.sizes}
        self.numbers |= {name: T.var(name, _FLOAT32) for name in stage.reals}

    def loop(self, extent: Expr | int, name: str) -> object:  # a context that gives the loop's variable
        """A loop from 0."""
        return self.builder.for_range(0, extent, name=name)

    @contextmanager
    def lanes(self, count: int = LANES) -> Iterator[Expr]:
        """Values at once."""
        with self.builder.for_range(0, count, name="lane", kind="vectorize") as lane:
            yield lane

    def row(self, extent: Expr, store: Callable[[Expr], None]) -> None:
        """Values of a row: whole vectors, then the rest."""
        with self.builder.for_range(0, T.floordiv(extent, T.const(LANES)), name="step") as step, self.lanes() as lane:
            store(step * LANES + lane)
        first = T.mul(T.floordiv(extent, T.const(LANES)), T.const(LANES))
        with self.builder.for_range(0, T.sub(extent, first), name="rest") as rest:
            store(T.add(first, rest))

    def registers(self, count: int, name: str = "sums") -> BufferVar:
        """Values that stay in registers: every index is a number once lanes are vectors."""
        return self.builder.allocate(_FLOAT32, (count,), name, scope="local")


@record(slots=True)
class Stage:
    """`emit(body, iteration)`; `sizes` and `reals` are its numbers, `tensors` what it reads and, last, writes."""

    name: str
    tensors: tuple[str, ...]
    sizes: tuple[str, ...]
    emit: Callable[[Body, Expr], None]
    reals: tuple[str, ...] = ()


def stage_function(stage: Stage, prefix: str = "") -> PrimFunc:
    """One parallel loop of `count` iterations; scalars: count, sizes, reals, the sizes of the tensors."""
    body, count = Body(stage), T.var("count")
    with body.builder.for_range(0, count, name="iteration", kind="parallel") as iteration:
        stage.emit(body, iteration)
    params = (*body.buffers, count, *body.numbers.values())
    return PrimFunc(params, body.builder.get(), (("global_symbol", prefix + stage.name),))


@once
def compiled_stage(stage: Stage) -> CompiledLoops:
    """The loop of a stage in this process."""
    return CompiledLoops.built(stage_function(stage))


class StageKernel(IKernel):
    """A stage over tensors: a window of `count` iterations along X."""

    def __init__(
        self, stage: Stage, tensors: Sequence[PlaneTensor], count: int, numbers: Mapping[str, int | float]
    ) -> None:
        super().__init__()
        self.name, self._stage, self._tensors, self._numbers = stage.name, stage, tuple(tensors), dict(numbers)
        self.configure_window(Window(Dimension(0, count)))

    def tensors(self) -> tuple[PlaneTensor, ...]:
        """What is read and written."""
        return self._tensors

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """All of the window."""
        stage, count = self._stage, self.window().x().end()
        values = {name: int(self._numbers[name]) for name in stage.sizes}
        values |= {name: bits_of(self._numbers[name], _FLOAT32) for name in stage.reals}
        values |= {
            f"{name}_size": t.info().total_size() // 4 for name, t in zip(stage.tensors, self._tensors, strict=True)
        }
        addresses = [t.address() for t in self._tensors]
        return (compiled_stage(stage).bind_values(addresses, values | {"count": count}, count),)

    def _run(self, window: Window, info: ThreadInfo) -> None:
        self.native_loops()[0].run(window.x().start(), window.x().end(), info.thread_id)
