"""Templates of networks' contractions on CPUs.

In: a contraction in the layouts that a build chose for it. Out: its space of algorithms, register tiles and, of
convolutions, other blocks of channels, as knobs of a configuration and as choices with estimates. Invariant:
as in `network_template.py`; of all choices a build's own, which is in the call's own blocks, is expected to be the
least. The choices: `cpu_space.py`; their knobs: `record_knobs.py` of the back end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.cpu_space import (
    MOVED_IN_A_CYCLE,
    RANKED_AFTER,
    at_cycles,
    blocks_of,
    cycles_of,
    direct_choices,
    selected,
    weighed,
    winograd_choices,
    with_fourier,
    with_taps,
)
from armillary.autotvm.task.network_template import Args, Family, NetworkTemplate, at_level
from armillary.autotvm.task.space import ConfigSpace
from armillary.autotvm.task.task import Task, create
from armillary.autotvm.task.templates import register_template
from armillary.autotvm.task.transforms import VirtualAxis
from armillary.backends.anchor import find_anchor
from armillary.backends.cpu import record_knobs, select
from armillary.backends.cpu.conv2d.direct.space import flat_parts
from armillary.backends.cpu.conv2d.fourier.fourier_conv2d import TRANSFORMED
from armillary.backends.cpu.conv2d.fourier.fourier_conv2d import eligible as by_fourier
from armillary.backends.cpu.conv2d.winograd.winograd_conv2d import BY_SIZE, eligible
from armillary.backends.cpu.graph import apply_records
from armillary.backends.cpu.graph._collapse_rows import collapse_rows
from armillary.backends.cpu.graph.alter_op_layout import block_lanes
from armillary.backends.cpu.manifest import TunedOperator
from armillary.backends.cpu.record_knobs import BLOCKS, TUNED, Blocks
from armillary.backends.cpu.space import OWN_TAPS, TAPS, Config, tile_of
from armillary.backends.records import keyed_attributes, keyed_extent
from armillary.backends.workload import Workload as Kind
from armillary.base.dispatch import Workload
from armillary.base.extent import typical
from armillary.driver.lower_fused import workload_of
from armillary.driver.program_codegen import Kernel
from armillary.relay.expr import Function
from armillary.relay.op import get_op
from armillary.target import Target
from armillary.target.choice import Choice, Source
from armillary.target.cpu import cpu_model

CONV2D = "nn.contrib_conv2d_NCHWc"
_BECOMES = ("cpu.conv2d_winograd_NCHWc", BY_SIZE, TRANSFORMED)  # of a convolution whose choice is a transform
_CONVOLUTIONS = ("conv2d_NCHWc.cpu", "depthwise_conv2d_NCHWc.cpu", "conv2d_NCHWc_int8.cpu", "conv2d_NCHWc_bf16.cpu")
_DENSE = ("dense_pack.cpu", "dense.cpu")
_WITH_CONSTANT = (*_CONVOLUTIONS, "dense_pack.cpu")


class CpuTemplate(NetworkTemplate):
    """One contraction of networks on a CPU."""

    @property
    def with_constant(self) -> bool:  # type: ignore[override]  # of each template its own
        return self.name in _WITH_CONSTANT

    def choice_of(self, config: ConfigSpace, workload: Workload) -> Choice:
        return record_knobs.choice_of(config, workload)

    def kernel(self, args: Args, where: Target) -> Kernel:
        is_direct = Choice(record_knobs.DIRECT, source=Source.OVERRIDE) if self.name == TUNED[CONV2D] else None
        return self.kernel_with(args, where, is_direct)

    def becomes(self) -> tuple[str, ...]:
        return _BECOMES if self.op.name == CONV2D else ()

    def as_lowered(self, function: Function, where: Target) -> Function:
        return collapse_rows(function, where)

    def define(self, config: ConfigSpace, args: Args, where: Target) -> None:
        self.define_choices(config, args, where, *self.choices(args, where))

    def define_choices(
        self, config: ConfigSpace, args: Args, where: Target, width: int, choices: Sequence[Choice]
    ) -> None:
        """The knobs of these choices; those that some leave out have the values of the call itself."""
        unwritten: dict[str, object] = {"fourier": 0, TAPS: record_knobs.annotations_of(OWN_TAPS)}
        if any(choice.layouts for choice in choices):
            own = record_knobs.own_blocks((self.name, *args))
            unwritten |= {name: block for name, block in zip(BLOCKS, own, strict=True) if block}
        rows = [record_knobs.knobs_of(choice, width) for choice in choices]
        names = [name for name in record_knobs.KNOBS if any(name in row for row in rows)]
        rows = [{name: row.get(name, unwritten.get(name)) for name in names} for row in rows]
        for name in names:
            if name == TAPS:
                config.define_annotate(name, [VirtualAxis(1, "kh"), VirtualAxis(1, "kw")], "try_unroll")
            else:
                config.define_knob(name, sorted({value for row in rows if isinstance(value := row[name], int)}))
        config.unwritten = unwritten
        config.restrict(rows)

    def choices(self, args: Args, where: Target) -> tuple[int, list[Choice]]:
        """The outputs of a row, and everything there is to choose: in the blocks of the call, which come first, and in
        others, whose layouts the choices name."""
        with at_level():
            return _choices(self, tuple(args), where)

    def workload(self, args: Args, where: Target) -> Kind:
        """The kernel of the call alone, as it is lowered."""
        function = collapse_rows(self.module(args)["main"], where)
        anchor = find_anchor(function)
        assert anchor is not None, "the kernel of a contraction has it"
        return workload_of(function, anchor, where)

    def choices_in_blocks(self, args: Args, where: Target) -> tuple[int, list[Choice]]:
        """The outputs of a row, and what there is to choose in the call's own layouts."""
        width, result = direct_choices(self.workload(args, where))
        layer = None if args[-1] is False else eligible(self.module(args)["main"].body)  # the network's call says so
        if layer is not None:
            result += winograd_choices(layer, cpu_model(where))
        by_transforms = by_fourier(self.module(args)["main"].body)
        if by_transforms is not None:
            result = with_fourier(by_transforms, result, cpu_model(where))
        is_direct = record_knobs.ALGORITHMS[self.name] == record_knobs.DIRECT
        return width, with_taps(result, args[1][1][2:4]) if is_direct else result

    def estimates(self, task: Task) -> list[tuple[int, float]]:
        """Configurations with their estimated seconds on one thread, the least first."""
        hertz = 1e9 * cpu_model(task.target).memory.ghz
        return sorted(((i, cycles_of(choice) / hertz) for i, choice in self._indexed(task)), key=lambda row: row[1])

    def parts(self, task: Task) -> dict[int, int]:
        if self.name != TUNED[CONV2D]:
            return {}
        with task.target:
            kernels = dict[Blocks, Kind]()
            for blocks in _blocks(self.name, task.args, task.target):
                args = _in_blocks(self.name, task.args, blocks) if kernels else task.args
                kernels[blocks if kernels else (0, 0)] = self.workload(args, task.target)
        cpu, result = cpu_model(task.target), {}
        for index, choice in self._indexed(task):
            if choice.algorithm == record_knobs.DIRECT:
                result[index] = flat_parts(kernels[record_knobs.blocks_of(choice)].typical, tile_of(choice), cpu)
        return {index: parts for index, parts in result.items() if parts}

    def _indexed(self, task: Task) -> list[tuple[int, Choice]]:
        with task.target:
            width, choices = self.choices(task.args, task.target)
        if BLOCKS[1] not in task.config_space:
            choices = [choice for choice in choices if not choice.layouts]
        rows = [{**task.config_space.unwritten, **record_knobs.knobs_of(choice, width)} for choice in choices]
        return list(zip(task.config_space.indices_of(rows), choices, strict=True))


class AlgorithmTemplate(CpuTemplate):
    """A call that one algorithm computes: the configurations of its space, with the costs that it expects."""

    def __init__(self, tuned: TunedOperator) -> None:
        super().__init__(tuned.task, get_op(tuned.op))
        self.tuned = tuned

    def define(self, config: ConfigSpace, args: Args, where: Target) -> None:
        rows = [dict(row) for row, _ in self._weighed(args, where)]
        for name in self.tuned.knobs:
            config.define_knob(name, sorted({row[name] for row in rows}))
        config.restrict(rows)

    def estimates(self, task: Task) -> list[tuple[int, float]]:
        cpu, rows = cpu_model(task.target), self._weighed(task.args, task.target)
        indices = task.config_space.indices_of([dict(row) for row, _ in rows])
        return [(index, cycles / cpu.memory.ghz * 1e-9) for index, (_, cycles) in zip(indices, rows, strict=True)]

    def parts(self, task: Task) -> dict[int, int]:
        return {}

    def _weighed(self, args: Args, where: Target) -> list[tuple[Config, float]]:
        """Configurations with their cycles, first what a build takes, then the least."""
        algorithm, cpu = self.tuned.algorithm, cpu_model(where)
        with where, at_level():
            workload = self.workload(args, where)
            if selected(workload) is not algorithm:
                raise TuningError(f"{workload.op.name} is computed by {selected(workload).name}, not {algorithm.name}")
            workload = workload.typical
            own = algorithm.default(workload, cpu, ())
            result = [(c.config, cycles_of(c)) for c in weighed(workload, algorithm, algorithm.space(workload, cpu))]
        return sorted(result, key=lambda row: (row[0] != own, row[1]))


def keep_layouts(task: Task) -> None:
    """Leave other blocks of channels than a convolution has out of the space of its task."""
    template = task.template
    assert isinstance(template, CpuTemplate), "tasks of networks on CPUs are asked"
    with task.target:
        width, choices = template.choices(task.args, task.target)
    task.config_space = ConfigSpace()
    own = [choice for choice in choices if not choice.layouts]
    template.define_choices(task.config_space, task.args, task.target, width, own)


def tasks_in_blocks(task: Task) -> dict[Blocks, Task]:
    """The convolution of a task alone, as a task in each of the blocks that it may be computed in, its own first; {}
    where there are no others. Trials of these move nothing between layouts, and choose none."""
    if BLOCKS[0] not in task.config_space:
        return {}
    result: dict[Blocks, Task] = {}
    for blocks in _blocks(task.name, task.args, task.target):
        args = _in_blocks(task.name, task.args, blocks) if result else task.args
        try:
            of_blocks = create(task.name, args, task.target, task.target_host)
        except TuningError:  # computed by something that has no space
            if not result:
                return {}
            continue
        keep_layouts(of_blocks)
        result[blocks] = of_blocks
    return result


def knobs_in_blocks(config: ConfigSpace, blocks: Blocks) -> dict[str, object]:
    """What a configuration of such a task is called in the space of the task it was made from."""
    knobs: dict[str, object] = {name: record_knobs.number_of(config[name]) for name in config}
    if TAPS in knobs:
        knobs[TAPS] = tuple(config[TAPS].anns)
    return knobs | dict(zip(BLOCKS, blocks, strict=True))


@lru_cache(maxsize=64)
def _choices(template: CpuTemplate, args: tuple[object, ...], where: Target) -> tuple[int, list[Choice]]:
    own, *others = _blocks(template.name, args, where)
    width, result = template.choices_in_blocks(args, where)
    least = min(map(cycles_of, result))
    for blocks in others:
        try:
            _, choices = template.choices_in_blocks(_in_blocks(template.name, args, blocks), where)
        except TuningError:  # computed by something that has no space
            continue
        layouts, wide = record_knobs.layouts_in(template.name, blocks), blocks[1] // block_lanes(where)
        choices = _expected(choices, least, _moved(args, own, blocks), wide)
        result = [*result, *(replace(choice, layouts=layouts) for choice in choices)]
        least = min(least, *map(cycles_of, choices))
    return width, result


def _expected(choices: Sequence[Choice], least: float, moved: float, wide: int) -> list[Choice]:
    """Choices of other blocks, with what moves data to them, after those of the call's own."""
    spread = {record_knobs.WINOGRAD: max(1, wide)}
    cycles = [cycles_of(c) * spread.get(c.algorithm, 1) + moved / MOVED_IN_A_CYCLE for c in choices]
    scale = max(1.0, RANKED_AFTER * least / min(cycles))
    return [at_cycles(choice, scale * spent) for choice, spent in zip(choices, cycles, strict=True)]


def _blocks(name: str, args: Args, where: Target) -> list[Blocks]:
    """Blocks of data and of result, the call's own first.

    Of products multiples of it: how many outputs its last block lacks, the call does not say.
    """
    if name not in record_knobs.IN_BLOCKS or {str(a[2]) for a in args[:2]} != {"float32"}:
        return [(0, 0)]
    own, lanes = record_knobs.own_blocks((name, *args)), block_lanes(where)
    if name == TUNED[record_knobs.PACKED]:
        wider = [(0, block) for block in (lanes, 2 * lanes) if block > own[1] and block % own[1] == 0]
        return [own, *wider]
    data, weight = (a[1] for a in args[:2])
    is_by_channel = name != TUNED[CONV2D]
    op = get_op(record_knobs.BLOCKED[is_by_channel])
    groups = args[2 + keyed_attributes(op).index("groups")]
    if groups != 1 and not is_by_channel:
        return [own]
    return blocks_of(own, (data[1] * data[4], weight[0] * weight[5]), lanes, is_by_channel=is_by_channel)


def _in_blocks(name: str, args: Args, blocks: Blocks) -> Args:
    """The arguments of a convolution in blocks of so many channels, of a product of so many outputs."""
    (tag, data, dtype), (_, weight, kind), *rest = args
    (inner, outer), layouts = blocks, record_knobs.layouts_in(name, blocks)
    if not inner:
        chunks = -(-weight[0] * weight[2] // outer)
        return (args[0], (tag, (chunks, weight[1], outer), kind), layouts[1], *rest[1:])
    is_by_channel = name != TUNED[CONV2D]
    n, chunks, *image, own = data
    outputs, inputs = weight[0] * weight[5], weight[1] * weight[4]
    moved = (tag, (n, chunks * own // inner, *image, inner), dtype)
    parts = (1, *weight[2:4], 1) if is_by_channel else (inputs // inner, *weight[2:4], inner)
    packed = (tag, (outputs // outer, *parts, outer), kind)
    names = keyed_attributes(get_op(record_knobs.BLOCKED[is_by_channel]))
    for key, text in zip(("data_layout", "kernel_layout", "out_layout"), layouts, strict=True):
        rest[names.index(key)] = text
    return (moved, packed, *rest)


def _moved(args: Args, own: tuple[int, int], blocks: tuple[int, int]) -> float:
    """Bytes that changes of layout move before and behind a convolution of other blocks than its own."""
    if not own[0]:
        return 0.0  # weights are packed when they are loaded
    data = 4 * prod(map(typical, map(keyed_extent, args[0][1])))
    result = data // (args[0][1][1] * own[0]) * args[1][1][0] * own[1]
    return (data if blocks[0] != own[0] else 0) + (result if blocks[1] != own[1] else 0)


for _tuned in select.TUNED.values():
    register_template(AlgorithmTemplate(_tuned) if _tuned.knobs else CpuTemplate(_tuned.task, get_op(_tuned.op)))
_PLAIN = {"nn.conv2d": _CONVOLUTIONS, "nn.dense": _DENSE}
_OF_BYTES = {
    f"q{name}": tasks for name, tasks in _PLAIN.items()
}  # or what computes them where bytes are not multiplied
_OF_FOLDERS = {op: (tuned.task,) for op, tuned in select.TUNED.items() if tuned.knobs}
FAMILY = Family(
    {**_PLAIN, **_OF_BYTES, "nn.batch_matmul": ("batch_matmul.cpu",), **_OF_FOLDERS},
    apply_records.apply_records,
    apply_records.rule_of,
)
