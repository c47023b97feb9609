"""Templates of networks' contractions on OpenCL devices.

In: a convolution or product in plain layout. Out: its space of algorithms and tiles, with the knobs of Relay-era logs
for GPUs (tile_fc, tile_y, tile_x, tile_rcc, unroll_explicit), and what the model of costs expects. Invariant: as in
`network_template.py`. The points: `points.py` of the back end; knobs and choices: its `graph/apply_records.py`.
"""

from __future__ import annotations

from functools import lru_cache

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.network_template import Args, Family, NetworkTemplate, at_level
from armillary.autotvm.task.space import ConfigSpace
from armillary.autotvm.task.task import Task
from armillary.autotvm.task.templates import register_template
from armillary.backends.opencl.algorithms import BECOMES
from armillary.backends.opencl.graph import apply_records
from armillary.backends.opencl.graph.apply_records import IMAGES, IMAGES_LAST, SPLITS, TUNED, knobs_of
from armillary.backends.opencl.graph.block_channels import with_channels_last
from armillary.backends.opencl.points import Point, points_of
from armillary.backends.opencl.space import PLAIN
from armillary.backends.opencl.texel_points import texel_points
from armillary.base.dispatch import Workload
from armillary.driver.program_codegen import Kernel
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function
from armillary.relay.op import get_op
from armillary.target import Target
from armillary.target.choice import Choice

_RATE = 1e12  # multiply-adds in a second, of the device that the model of costs has in mind


class OpenCLTemplate(NetworkTemplate):
    """One contraction of networks on an OpenCL device."""

    @property
    def with_constant(self) -> bool:  # type: ignore[override]  # of each template its own
        return self.op.name == "nn.conv2d"

    def choice_of(self, config: ConfigSpace, workload: Workload) -> Choice:
        return apply_records.choice_of(config, workload)

    def kernel(self, args: Args, where: Target) -> Kernel:
        return self.kernel_with(args, where, Choice(PLAIN.name))

    def becomes(self) -> tuple[str, ...]:
        return BECOMES.get(self.op.name, ())

    def call_of(self, args: Args) -> Call:
        """The call in plain layout."""
        result: Call = super().module(args)["main"].body
        return result

    def points(self, args: Args) -> list[Point]:
        """Everything there is to choose; the first is what a build takes by itself."""
        return _points(self, tuple(args))

    def define(self, config: ConfigSpace, args: Args, where: Target) -> None:
        rows = [knobs_of(point.choice) for point in self.points(args)]
        if len(rows) < 2:
            raise TuningError(f"{self.op.name}{tuple(args)} has nothing to tune: plain loops compute it")
        for name in SPLITS:
            candidates = sorted({row[name] for row in rows})
            config.define_split(name, 1, "candidate", candidate=candidates, num_outputs=len(candidates[0]))
        for name in ("winograd", "unroll_explicit"):
            config.define_knob(name, sorted({row[name] for row in rows}))
        config.restrict(rows)

    def estimates(self, task: Task) -> list[tuple[int, float]]:
        """Configurations with their estimated seconds: first what a build takes, then by their estimate."""
        with task.target, at_level():
            points = self.points(task.args)
        indices = task.config_space.indices_of([knobs_of(point.choice) for point in points])
        return [(index, point.cost / _RATE) for index, point in zip(indices, points, strict=True)]


class ChannelsLastTemplate(OpenCLTemplate):
    """One convolution of a network whose images have channels last: its trials are such networks."""

    def module(self, args: Args, choice: Choice | None = None, around: Function | None = None) -> IRModule:
        return IRModule.from_expr(with_channels_last(super().module(args, choice, around)["main"]))


@lru_cache(maxsize=64)
def _points(template: OpenCLTemplate, args: tuple[object, ...]) -> list[Point]:  # plain values
    with at_level():
        call = template.call_of(args)
        return texel_points(call) if template.name in (*IMAGES, *IMAGES_LAST) else points_of(call)


for _op, _names in TUNED.items():
    for _name in _names:
        _kind = ChannelsLastTemplate if _name in IMAGES_LAST else OpenCLTemplate
        register_template(_kind(_name, get_op(_op)))
FAMILY = Family(TUNED, apply_records.opencl_apply_records, apply_records.rule_here)
