"""Templates of networks' contractions on CPUs.

In: a contraction in the layouts that a build chose for it. Out: its space of algorithms and register tiles, as knobs of
a configuration and as what the model of costs expects. Invariant: as in
`network_template.py`. The points: `cpu_space.py`.
"""

from __future__ import annotations

from armillary.autotvm.task.cpu_space import Point, direct_points, winograd_points
from armillary.autotvm.task.network_template import Args, Family, NetworkTemplate, at_level
from armillary.autotvm.task.space import ConfigSpace
from armillary.autotvm.task.task import Task, register_template
from armillary.backends.anchor import find_anchor
from armillary.backends.cpu.graph import apply_records
from armillary.backends.cpu.graph._collapse_rows import collapse_rows
from armillary.backends.cpu.graph.winograd_conv2d import eligible
from armillary.base.dispatch import Workload
from armillary.driver.graph_codegen import Kernel
from armillary.driver.lower_fused import workload_of
from armillary.relay.expr import Function
from armillary.relay.op import get_op
from armillary.target import Target
from armillary.target.choice import Choice
from armillary.target.cpu import cpu_model

CONV2D, WINOGRAD = "nn.contrib_conv2d_NCHWc", "cpu.conv2d_winograd_NCHWc"
_WITH_CONSTANT = ("conv2d_NCHWc.cpu", "depthwise_conv2d_NCHWc.cpu", "dense_pack.cpu")


class CpuTemplate(NetworkTemplate):
    """One contraction of networks on a CPU."""

    @property
    def with_constant(self) -> bool:  # type: ignore[override]  # of each template its own
        return self.name in _WITH_CONSTANT

    def choice_of(self, config: ConfigSpace, workload: Workload) -> Choice:
        return apply_records.choice_of(config, workload)

    def kernel(self, args: Args, where: Target) -> Kernel:
        is_direct = Choice("conv2d.direct") if self.name == "conv2d_NCHWc.cpu" else None
        return self.kernel_with(args, where, is_direct)

    def becomes(self) -> tuple[str, ...]:
        return (WINOGRAD,) if self.op.name == CONV2D else ()

    def as_lowered(self, function: Function, where: Target) -> Function:
        return collapse_rows(function, where)

    def define(self, config: ConfigSpace, args: Args, where: Target) -> None:
        width, points = self.points(args, where)
        knobs = [point.knobs() for point in points]
        for name in ("winograd", "strip", "rows", "vectors", "lines"):
            config.define_knob(name, sorted({row[name] for row in knobs}))
        config.define_knob("width", [width])
        config.restrict([{**row, "width": width} for row in knobs])

    def points(self, args: Args, where: Target) -> tuple[int, list[Point]]:
        """The outputs of a row, and everything there is to choose."""
        function = collapse_rows(self.kernel(args, where).function, where)
        anchor = find_anchor(function)
        assert anchor is not None, "the kernel of a contraction has it"
        width, found = direct_points(workload_of(function, anchor, where))
        if self.name == "conv2d_NCHWc.cpu" and bool(args[-1]):
            layer = eligible(self.module(args)["main"].body)
            assert layer is not None, "the workload says so"
            found += winograd_points(layer, cpu_model(where))
        return width, found

    def estimates(self, task: Task) -> list[tuple[int, float]]:
        """Configurations with their estimated seconds on one thread, the least first."""
        cpu = cpu_model(task.target)
        with task.target, at_level():
            width, points = self.points(task.args, task.target)
        indices = task.config_space.indices_of([{**point.knobs(), "width": width} for point in points])
        found = [(i, point.cycles / cpu.memory.ghz * 1e-9) for i, point in zip(indices, points, strict=True)]
        return sorted(found, key=lambda row: row[1])


for _op, _name in apply_records.TUNED.items():
    register_template(CpuTemplate(_name, get_op(_op)))
FAMILY = Family(
    {
        "nn.conv2d": ("conv2d_NCHWc.cpu", "depthwise_conv2d_NCHWc.cpu"),
        "nn.dense": ("dense_pack.cpu", "dense.cpu"),
        "nn.batch_matmul": ("batch_matmul.cpu",),
    },
    apply_records.apply_records,
    apply_records.workload_of,
)
