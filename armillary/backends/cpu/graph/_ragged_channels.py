"""Channels that meet in concatenations, or are cut apart: how many to add so that whole blocks meet.

In: a function and a CPU. Out: by id of a convolution, its `Channels` (see wide_channels.py), for the groups of values
where that is estimated to take clearly less time. A group is what elementwise operators, concatenations and slices
connect: 14, 24 and 64 channels that meet in 102 leave every reader blocks of six and no Winograd; as 16, 32 and 64 they
are seven whole vectors. Invariant: one unit for a whole group, since the least block of the parts is the block of all;
a run is cut where any slice in the group cuts it, so that slices take whole blocks too. Who asks: pad_channels.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from armillary.backends.channels.joined_channels import (
    Cuts,
    channels_of,
    cuts_of,
    groups_of,
    parts_of,
    rounded,
)
from armillary.backends.channels.wide_channels import (
    Channels,
    absorbs,
    calls_of,
    is_depthwise,
    sliced_reads,
    spread,
)
from armillary.backends.cpu.conv2d.winograd.cost import TILES, Layer, best_plan, estimate
from armillary.backends.cpu.cost.model import Nest, bandwidth_of, ranked_tiles, weight_bandwidth
from armillary.backends.winograd import MAX_TILE
from armillary.base.data_layout import choose_block
from armillary.base.record import record
from armillary.ops.nn.conv import window
from armillary.relay.expr import Call, Expr, Function, typical_of
from armillary.relay.transform._rules import op_name
from armillary.relay.transform.layout._engine import flat_arguments
from armillary.target.cpu import CpuModel
from armillary.transform import PassContext

GAIN = 0.9  # of the estimated time as it is
CHANGE = 1.0  # cycles for each element whose block changes, or that is sliced out of one


def ragged_channels(
    function: Function, alone: Mapping[int, Channels], lanes: int, cpu: CpuModel
) -> dict[int, Channels]:
    """The channels of each convolution that should have more, in all groups; `alone`: wide values without that."""
    calls = calls_of(function)
    network = sum(e.args[1].nbytes for e in calls if absorbs(e))  # type: ignore[attr-defined]
    cuts = cuts_of(calls)
    result: dict[int, Channels] = {}
    for members in groups_of(calls):
        result |= _Group(members, _readers(calls, members), alone, cuts, lanes, cpu, network).best()
    return result


def _readers(calls: Sequence[Call], members: Sequence[Call]) -> list[Call]:
    """The calls that are no members and read one."""
    inside = {id(c) for c in members}
    return [c for c in calls if id(c) not in inside and any(id(a) in inside for a in flat_arguments(c))]


@record
class _Group:
    """Values that share channels, arguments first; who reads them; what their convolutions cost."""

    members: Sequence[Call]
    readers: Sequence[Call]
    alone: Mapping[int, Channels]
    cuts: Cuts
    lanes: int
    cpu: CpuModel
    network: int  # bytes of all weights

    def best(self) -> dict[int, Channels]:
        """The channels of each convolution by the unit that takes least time; empty: as they are."""
        best: dict[int, Channels] = {}
        least = GAIN * self._cycles(self.alone)
        for unit in (self.lanes, self.lanes // 2):
            chosen = rounded(self.members, self.cuts, unit) if unit >= 4 else {}
            if chosen and (cycles := self._cycles(self._wide(chosen))) < least:
                best, least = chosen, cycles
        return best

    def _wide(self, chosen: Mapping[int, Channels]) -> Mapping[int, Channels]:
        """All wide values with these of the group's convolutions."""
        inside = {id(c) for c in self.members}
        rest = {key: channels for key, channels in self.alone.items() if key not in inside}
        wide, _ = spread([*self.members, *self.readers], chosen, chosen.keys())
        return rest | wide

    def _cycles(self, wide: Mapping[int, Channels]) -> float:
        """Estimated time of all convolutions of the group, and of the copies."""
        total = 0.0
        for expr in (*self.members, *self.readers):
            name = op_name(expr)
            if absorbs(expr):
                total += self._convolution(expr, wide)
            elif is_depthwise(expr):
                total += math.prod(expr.args[1].held.shape[2:]) * self._vectors(expr, wide)  # type: ignore[attr-defined]
            elif name == "concatenate":
                total += self._concatenation(expr, wide)
            elif name == "strided_slice":
                total += self._slice(expr, wide)
            total += CHANGE * sum(self._elements(value, wide) for value in sliced_reads(expr, wide))
        return total

    def _width(self, expr: Expr, wide: Mapping[int, Channels]) -> int:
        return wide[id(expr)].width if id(expr) in wide else channels_of(expr)

    def _block(self, expr: Expr, wide: Mapping[int, Channels]) -> int:
        """The block that all parts of a value can have; 0: none."""
        widths = parts_of(expr, self.cuts)
        if id(expr) in wide:
            first = 0
            for index, part in enumerate(widths):
                widths[index] = wide[id(expr)].cut(first, part).width
                first += part
        return choose_block(math.gcd(*widths), self.lanes)

    def _own_block(self, expr: Expr, wide: Mapping[int, Channels]) -> int:
        """The block of a convolution that does not ask its readers."""
        return choose_block(self._width(expr, wide), self.lanes) or self.lanes

    def _elements(self, expr: Expr, wide: Mapping[int, Channels]) -> int:
        result = typical_of(expr)
        return self._width(expr, wide) * math.prod(result.static[2:]) * result.static[0] if result is not None else 0

    def _vectors(self, expr: Expr, wide: Mapping[int, Channels]) -> float:
        return self._elements(expr, wide) / (self._block(expr, wide) or 1)

    def _copy(self, expr: Expr, wide: Mapping[int, Channels]) -> float:
        """Cycles of reading and writing a value once."""
        nbytes = 4.0 * self._elements(expr, wide)
        return 2 * nbytes / bandwidth_of(nbytes, self.cpu)

    def _concatenation(self, expr: Call, wide: Mapping[int, Channels]) -> float:
        """A copy; more of the parts whose own block is another."""
        block = self._block(expr, wide)
        other = [a for a in flat_arguments(expr) if self._own_block(a, wide) != block]
        return self._copy(expr, wide) + CHANGE * sum(self._elements(a, wide) for a in other)

    def _slice(self, expr: Call, wide: Mapping[int, Channels]) -> float:
        """A copy; more where it does not take whole blocks."""
        data = expr.args[0]
        is_whole = self._block(data, wide) == self._own_block(data, wide)
        return self._copy(expr, wide) + (0 if is_whole else CHANGE * self._elements(expr, wide))

    def _convolution(self, expr: Call, wide: Mapping[int, Channels]) -> float:
        data, weight, result = expr.args[0], expr.args[1].held, typical_of(expr)  # type: ignore[attr-defined]
        if result is None or op_name(expr) != "nn.conv2d":
            return 0.0
        (batch, _, height, width), inputs = result.static, self._width(data, wide)
        inner, outer = self._block(data, wide), self._own_block(expr, wide)
        kernel = math.prod(weight.shape[2:])
        outputs = -(-self._width(expr, wide) // outer) * outer
        win = window("nn.conv2d", expr.attrs, 2)
        layer = Layer(inputs, outputs, batch, height, width, outer, win.dilation)
        nest = Nest(
            width,
            batch * height,
            outputs // outer,
            inputs * kernel,
            weight_bandwidth(self.cpu, self.network),
            is_narrow=layer.is_narrow(self.cpu),
        )
        direct = ranked_tiles(nest, self.cpu)[0][1].cycles
        if inner != outer or weight.shape[2:] != (3, 3) or set(win.strides) != {1}:
            return direct
        tiles = [tile for tile in TILES if tile <= PassContext.current().get(MAX_TILE)]
        plans = [best_plan(layer, tile, self.cpu, self.network) for tile in tiles]
        return min([direct, *(estimate(layer, plan, self.cpu, self.network).cycles for plan in plans)])
