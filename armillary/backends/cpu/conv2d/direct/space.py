"""What the direct convolution on blocked layouts can choose from, and what the model of costs expects of it.

In: a workload (nn.contrib_conv2d_NCHWc and its kin) and a `CpuModel`. Out: the product by register tiles that it is
(`nest_of`), how threads share it, why Winograd's algorithm cannot compute it, the explanation. Invariant: no tensor
expression is imported; schedule.py makes the loops of what is chosen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from armillary.backends.cpu.conv2d.direct.operator_frames import FramesConv2DAttrs
from armillary.backends.cpu.conv2d.winograd.cost import TILES, best_plan, estimate
from armillary.backends.cpu.conv2d.winograd.operator import layer_of
from armillary.backends.cpu.cost.model import (
    MAX_OPEN_ROWS,
    SHOWN_INPUT,
    Nest,
    Tile,
    bandwidth_of,
    sums_by_parts,
    tiles,
    waits,
    weighed_tiles,
    weight_bandwidth,
)
from armillary.backends.cpu.cost.vectors import bands_of, lanes_of, longest_part
from armillary.backends.cpu.space import (
    OWN_TAPS,
    TAPS,
    Algorithm,
    Config,
    Weighed,
    best_tile_config,
    tile_config,
    tile_of,
)
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import BYTES, LONG
from armillary.ops.nn.conv import window
from armillary.target.choice import Choice, Cost, Rejection, Source, stored_choice
from armillary.target.cpu import CpuModel, cpu_model

if TYPE_CHECKING:
    from armillary.tir.expr import Expr

IMAGE, COLUMNS = {2, 3}, {3}  # axes
FEWEST_PIXELS, MANY_CHANNELS = 200, 64  # of all images together from which lines of an image are tiled; of data, result
DOT_WEIGHT_RANK = 7  # of a weight for dot products
COMMON_COLUMNS = 14  # of a tile
MAX_SPELLED_ROWS = 8  # of an image whose tall tiles are
WEIGHTS_PER_DATA, WEIGHTS_PER_DATA_BESIDE_TWO_PORTS = 4, 6
FEW_BANDS, MOST_BANDS = 2, 8  # of a flat image, where each band reads the weights from beyond L2 or not
PIXELS_TOGETHER = 256  # of a batch's images, that use weights from beyond L2 one after another: 1024 to 1024 on 7x7


def has_dot_operands(weight: Sequence[Expr | int]) -> bool:
    """Whether a weight of this shape is packed for dot products: a step of the sum then is one of those."""
    return len(weight) == DOT_WEIGHT_RANK


def nest_of(workload: Workload, cpu: CpuModel) -> Nest:
    """The convolution as a register-tiled product: lines are output rows, steps are taps times input channels."""
    weight = workload.tensor(1)
    result = workload.result
    batch, chunks, height, width, block = result.static
    images = _images_with_weights_near(workload, cpu)
    _, i_blocks, kh, kw, ci, *_ = weight.static
    lanes = lanes_of(cpu, result.dtype)
    wide, narrow = max(1, block // lanes), 2 * block <= lanes
    data = workload.tensor(0)
    weights = weight_bandwidth(cpu)
    groups = workload.attrs.groups if cpu.fma_ports > 1 else 1  # one port has time for each group's inputs
    lines = min(1.0, kh / workload.attrs.strides[0]) if cpu.multiplies_lanes else 1.0  # of the data, that windows touch
    reread = lines * SHOWN_INPUT * data.nbytes / groups / bandwidth_of(data.nbytes * images // max(1, batch), cpu)
    steps = i_blocks * kh * kw * ci
    # blocks by threes that leave a rest take longer than by twos, and threads share them less evenly
    is_row = is_flat(workload, cpu) and not _is_small(workload, cpu)
    takes_rest = chunks % 2 == 1 or is_row or cpu.multiplies_lanes
    has_rest = takes_rest and workload.attrs.groups == 1 and cpu.fma_ports > 1
    is_padded = has_padded_rows(workload) and not _spells_rows(height, cpu)
    below = 1 if workload.named & IMAGE or is_banded(workload) or is_padded else height
    in_words = has_dot_operands(weight.static)
    has_pairs = in_words and weight.static[-1] == LONG
    is_spread = in_words and not has_pairs and cpu.widens_bytes and getattr(workload.attrs, "is_symmetric", False)
    taps, step = () if in_words else _taps_of_a_line(workload), kh * kw * ci
    return Nest(
        width,
        images * height,
        chunks,
        steps,
        weights,
        wide=wide,
        reread=reread,
        is_narrow=narrow,
        lines_per_image=below,
        is_ragged=True,
        has_rest=has_rest,
        group=chunks // groups if groups > 1 else 0,
        taps=taps,
        part=longest_part(i_blocks, step) * step if taps and ci > 1 else 0,
        can_prefetch=cpu.fma_ports > 1 and not in_words,
        held=cpu.held_steps(ci) if not in_words else 1,
        pairs=has_pairs,
        is_spread=is_spread,
        register_bytes=2 * cpu.vector_bits // 8 if has_pairs else 0,
        repeats=batch // images,
        max_rows=MAX_OPEN_ROWS if workload.named & IMAGE else width,
    )


def _is_small(workload: Workload, cpu: CpuModel) -> bool:
    """Whether an image has so few pixels that products wait for the weights, yet more than a tile of two blocks."""
    result = workload.result
    height, width = result.static[2:4]
    weight = workload.tensor(1)
    if has_dot_operands(weight.static):
        return False
    pixels = _images_with_weights_near(workload, cpu) * height * width
    return bool(2 * pixels + 2 >= cpu.vector_registers and waits(pixels, weight_bandwidth(cpu), cpu))


def _taps_of_a_line(workload: Workload) -> tuple[tuple[int, int], ...]:
    """The columns of the output for which each tap of a window lies on the data; () where padding is narrow."""
    data, weight = (t.static for t in workload.types[:2])  # type: ignore[attr-defined]
    result = workload.result
    win, width = window(workload.op.name, workload.attrs, 2), result.static[3]
    step, dilation, (left, right) = win.strides[1], win.dilation[1], win.pads[1]
    if dilation == 1 or left + right == 0 or not has_wide_border(workload, COMMON_COLUMNS):
        return ()
    starts = [tap * dilation - left for tap in range(weight[3])]  # where a tap lies for the first output
    return tuple((max(0, -(start // step)), min(width, -((start - data[3]) // step))) for start in starts)


def has_padded_rows(workload: Workload) -> bool:
    """Whether windows reach above or below the data."""
    return any(window(workload.op.name, workload.attrs, 2).pads[0])


def _spells_rows(height: int, cpu: CpuModel) -> bool:
    """Whether tall tiles may reach into padding: each is spelled out with its taps, so that none is asked about.

    With them a small image reads its weights once.
    """
    return height <= MAX_SPELLED_ROWS and cpu.fma_ports > 1


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    configs = [tile_config(tile) for tile in dict.fromkeys(tiles(nest_of(workload, cpu), cpu))]
    return [*configs, *((*config, (TAPS, taps)) for config in configs for taps in range(4))]


def _default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    taps = tuple(knob for knob in stated if knob[0] == TAPS)
    return (*best_tile_config(nest_of(workload, cpu), cpu, tuple(k for k in stated if k not in taps)), *taps)


def can_gather(workload: Workload) -> bool:
    """Whether few pixels of it are worth a copy of what they read: both sides of the image are open, a pixel reads
    several others, and channels are many on both sides of the product. A choice that somebody states is for all sizes.

    workload: at typical sizes."""
    weight = workload.tensor(1)
    is_plain = workload.op.name == "nn.contrib_conv2d_NCHWc" and workload.attrs.groups == 1
    is_open = workload.named >= IMAGE and stored_choice(workload).source is not Source.OVERRIDE
    if not is_open or not is_plain or {str(weight.dtype), str(workload.result.dtype)} != {"float32"}:
        return False
    o_blocks, i_blocks, kh, kw, ci, co = weight.static
    return bool(kh * kw > 1 and min(i_blocks * ci, o_blocks * co) >= MANY_CHANNELS)


def gathered_nest(workload: Workload, cpu: CpuModel) -> Nest:
    """The product over the pixels of all images, as if one line had them: tiles of the height that fits."""
    nest = nest_of(workload, cpu)
    nest = replace(nest, width=FEWEST_PIXELS // 2, lines=1, lines_per_image=1, repeats=1, taps=(), part=0)
    return replace(nest, max_rows=MAX_OPEN_ROWS, reread=0.0, can_prefetch=False)


def _gathered_space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [tile_config(tile) for tile in dict.fromkeys(tiles(gathered_nest(workload, cpu), cpu))]


def _gathered_default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    return best_tile_config(gathered_nest(workload, cpu), cpu, stated)


def _weigh_gathered(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    cost, *others = weighed_tiles(gathered_nest(workload, cpu), tile_of(choice), cpu)
    return Weighed(Cost(cost.cycles, cost.bound), tuple(others))


def spelled_taps(choice: Choice, needs_lines: bool = False) -> tuple[str, ...]:
    """The loops over taps that a choice unrolls; `needs_lines`: whether those over lines are in any case."""
    taps = choice.knob(TAPS, OWN_TAPS)
    return (*(("kh",) if needs_lines or taps & 2 else ()), *(("kw",) if taps & 1 else ()))


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The register tile against the best with other numbers of vectors, and Winograd, or why it does not apply."""
    cost, *others = weighed_tiles(nest_of(workload, cpu), tile_of(choice), cpu)
    reason = not_winograd(workload)
    if reason is not None:
        return Weighed(Cost(cost.cycles, cost.bound), tuple(others), (Rejection("Winograd", reason=reason),))
    if not choice.rejected:  # no algorithm was selected before
        data, result = workload.types[0], workload.op.infer_type(workload.attrs, workload.types)
        layer = layer_of(workload.attrs, data, result)  # type: ignore[arg-type]  # tensor types, as inference has checked
        others += [estimate(layer, best_plan(layer, m, cpu), cpu) for m in TILES[:2]]
    return Weighed(Cost(cost.cycles, cost.bound), tuple(others))


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    nest = nest_of(workload, cpu)
    tile = tile_of(Choice(config=config))
    return f"direct convolution{', the sum by parts' if nest.taps and sums_by_parts(nest, tile, cpu) else ''}"


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    return {"width": nest_of(workload, cpu).width}


DIRECT = Algorithm("conv2d.direct", _space, _default, _weigh, _title, _extents)
GATHERED = Algorithm(
    "conv2d.gathered",
    _gathered_space,
    _gathered_default,
    _weigh_gathered,
    lambda workload, cpu, config: "a product over gathered pixels",
    _extents,
)


def not_winograd(workload: Workload) -> str | None:
    """Why Winograd's algorithm cannot compute this convolution; None if it can."""
    weight = workload.tensor(1)
    kernel, attrs = weight.static[2:4], workload.attrs
    if has_dot_operands(weight.static):
        return f"its transforms need more than {'bytes' if weight.static[-1] >= BYTES else 'bfloat16'}"
    if isinstance(attrs, FramesConv2DAttrs):
        return f"it reads {attrs.frames} frames for a result"
    if kernel != (3, 3):
        return f"the kernel is {kernel[0]}x{kernel[1]}, not 3x3"
    if set(attrs.strides) != {1}:
        return f"the strides are {attrs.strides[0]}x{attrs.strides[1]}, not 1x1"
    return None


def has_longer_blocks(workload: Workload) -> str | None:
    """None, or how the weight takes more channels together than the data has in a block."""
    data, weight = (workload.tensor(k).static for k in (0, 1))
    if weight[4] * weight[6] == data[4]:
        return None
    return f"the weight takes {weight[4] * weight[6]} channels together, the data has blocks of {data[4]}"


def is_flat(workload: Workload, cpu: CpuModel) -> bool:
    """Whether it is a product of one row of pixels with a matrix, as backends/cpu/graph/_collapse_rows.py makes it."""
    data, weight = (t.static for t in workload.types[:2])  # type: ignore[attr-defined]
    result = workload.result
    return bool(cpu.fma_ports > 1 and weight[2:4] == (1, 1) and data[2] == 1 and result.static[2:4] == data[2:4])


def is_banded(workload: Workload) -> bool:
    """Whether threads share the rows, and each reads all weights, or the channels, and each reads all data.

    A line of data from the other core's cache takes about as long as four lines of weights from memory; on servers with
    two ports and a mesh between the cores as six: 256 to 1024 channels on 14x14 and what comes next, ResNet-50 0.975.
    """
    data, weight = (t.nbytes for t in workload.types[:2])  # type: ignore[attr-defined]
    has_two_ports = cpu_model(workload.target).fma_ports > 1
    return bool(weight <= (WEIGHTS_PER_DATA_BESIDE_TWO_PORTS if has_two_ports else WEIGHTS_PER_DATA) * data)


def flat_bands(tiles: int, workload: Workload, cpu: CpuModel) -> int:
    """Bands of tiles, so that threads share a flat image by pixels, as backends/cpu/loops.py does rows."""
    if not is_banded(workload):
        return 1
    return bands_of(tiles, FEW_BANDS if workload.tensor(1).nbytes > cpu.l2 // 2 else MOST_BANDS)


def flat_parts(workload: Workload, tile: Tile, cpu: CpuModel) -> int:
    """Into how many parts a flat image is divided for threads to share; 0 where it is another kernel."""
    if not is_flat(workload, cpu):
        return 0
    batch, chunks, _, width, _ = workload.result.static
    images, groups = images_together(workload, cpu), -(-chunks // tile.vectors)
    bands = 1 if images > 1 else flat_bands(-(-width // tile.rows), workload, cpu)
    return batch // images * bands * groups


def images_together(workload: Workload, cpu: CpuModel) -> int:
    """How many images of a batch go through a group of channels before the next group does.

    Weights that do not stay in L2 otherwise come again for each image. So many that their products hide it, while L2
    keeps their data.
    """
    data, weight = (t.nbytes for t in workload.types[:2])  # type: ignore[attr-defined]
    result = workload.result
    batch, _, height, width, _ = result.static
    is_other = workload.attrs.groups > 1 or isinstance(workload.attrs, FramesConv2DAttrs)
    if is_other or batch < 2 or _stays_near(weight, cpu):
        return 1
    fitting = [n for n in range(1, batch + 1) if batch % n == 0 and n * data // batch <= cpu.l2 // 2]
    return next((n for n in fitting if n * height * width >= PIXELS_TOGETHER), max(fitting, default=1))


def reads_weights_once(workload: Workload, cpu: CpuModel) -> bool:
    """Whether a group of channels goes through a batch of open size before the next group does: its weights stay in L2
    between images, those of all groups would not."""
    weight = workload.tensor(1)
    is_plain = workload.attrs.groups == 1 and not isinstance(workload.attrs, FramesConv2DAttrs)
    return is_plain and 0 in workload.named and not _stays_near(weight.nbytes, cpu) and not is_banded(workload)


def _stays_near(nbytes: int, cpu: CpuModel) -> bool:
    """Whether weights of so many bytes are still in L2 when the next image needs them."""
    return nbytes <= cpu.l2 // 2


def _images_with_weights_near(workload: Workload, cpu: CpuModel) -> int:
    """How many images find weights near which the first of them fetched."""
    weight = workload.tensor(1)
    result = workload.result
    batch = max(1, result.static[0])
    return batch if _stays_near(weight.nbytes, cpu) else images_together(workload, cpu)


def has_wide_border(workload: Workload, columns: int) -> bool:
    """Whether padding reaches into more than one tile on a side of a row, or into all, as dilated windows have it.

    Loop partition peels one tile on each side. Spelled out, each tile knows which columns lie on the data.
    """
    data, weight = (t.static for t in workload.types[:2])  # type: ignore[attr-defined]
    win = window(workload.op.name, workload.attrs, 2)
    step, (left, right) = win.strides[1] * columns, win.pads[1]
    reach = (weight[3] - 1) * win.dilation[1] + 1
    width = (data[3] + left + right - reach) // win.strides[1] + 1
    tiles, before = -(-width // columns), -(-left // step)
    whole = max(0, data[3] + left - reach + win.strides[1]) // step  # tiles that end before the padding on the right
    return bool(max(before, tiles - whole) > 1 or (whole <= before and tiles > 1))
