"""The knobs of tuning records on CPUs, and the choices that they are: one is written as the other, and read back.

In: the choice of a contraction, or the configuration of a record, with the workload of its task. Out: the other.
Invariant: `choice_of(knobs_of(choice))` is the choice without its estimate; a record whose knobs are no choice of its
task is an error that says so. The names are those of logs: winograd, strip, rows, vectors, lines, width, data_block,
result_block, fourier, matrix_tiles, ann_reduce; 0 is no transform. What a choice may be: target/choice.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.backends.cpu import select
from armillary.backends.cpu.space import OWN_TAPS, TAPS
from armillary.base.data_layout import layout
from armillary.base.dispatch import Workload
from armillary.errors import ConfigError
from armillary.target.choice import Choice, Guard, Rejection, Source

TUNED = {tuned.op: tuned.task for tuned in select.TUNED.values()}
BLOCKED = ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
PACKED = "nn.contrib_dense_pack"
IN_BLOCKS = tuple(TUNED[name] for name in (*BLOCKED, PACKED))
DIRECT, WINOGRAD, FOURIER = "conv2d.direct", "conv2d.winograd", "conv2d.fourier"
ALGORITHMS = {tuned.task: tuned.algorithm.name for tuned in select.TUNED.values()}  # without transforms
ANNOTATIONS = ("none", "unroll")  # of the loops over kh and kw, in the knob TAPS
BLOCKS = ("data_block", "result_block")  # knobs
MATRIX_TILES = "matrix_tiles"  # a knob of what is computed by those: 1
_TILE = ("rows", "vectors", "lines")
_LEAST = {"rows", "vectors", "width"}  # knobs that every record of a contraction has
_MOST = {"winograd", "strip", "fourier", TAPS, MATRIX_TILES, *BLOCKS, *_TILE, *_LEAST}
KNOBS = ("winograd", "strip", *_TILE, "width", *BLOCKS, "fourier", MATRIX_TILES, TAPS)  # in the order of a space
NOT_FOURIER = Rejection(FOURIER, reason="the record is faster")  # of a choice whose task has both
Blocks = tuple[int, int]  # channels of a block of data, and of result
Knobs = Mapping[str, object]  # numbers, of annotations two texts


def knobs_of(choice: Choice, width: int) -> Knobs:
    """The knobs that a choice of a contraction states, of a row with so many outputs; the others are the space's."""
    tile = {name: choice.knob(name, 1) for name in _TILE}
    knobs = {"winograd": choice.knob("tile", 0), "strip": choice.knob("strip", 0), **tile, "width": width}
    by_transforms = {"fourier": 1} if choice.algorithm == FOURIER else {}
    by_tiles = {MATRIX_TILES: 1} if choice.algorithm.endswith(f".{MATRIX_TILES}") else {}
    blocks = {name: block for name, block in zip(BLOCKS, blocks_of(choice), strict=True) if block}
    annotated = {TAPS: annotations_of(choice.knob(TAPS))} if choice.knob(TAPS) >= 0 else {}
    return {**knobs, **blocks, **by_transforms, **by_tiles, **annotated}


def choice_of(config: Any, workload: Workload) -> Choice:  # Any: a ConfigEntity; its package lies above
    """The choice that a configuration of a task states."""
    values = {name: value for name in config if (value := number_of(config[name])) is not None}
    tuned = next(t for t in select.TUNED.values() if t.task == workload[0])
    _check(config, values, workload, (set(tuned.knobs), set(tuned.knobs)) if tuned.knobs else (_LEAST, _MOST))
    if tuned.knobs:
        return Choice(tuned.algorithm.name, tuple((k, values[k]) for k in tuned.knobs), source=Source.RECORD)
    tile, layouts = tuple((name, values.get(name, 1)) for name in _TILE), _layouts_of(values, workload)
    algorithm = _algorithm_of(values, workload)
    if algorithm == WINOGRAD:
        strip = (("strip", values["strip"]),) if values.get("strip", -1) >= 0 else ()
        return Choice(WINOGRAD, (("tile", values["winograd"]), *strip, *tile), layouts, source=Source.RECORD)
    if algorithm == FOURIER:
        return Choice(FOURIER, tile, layouts, source=Source.RECORD)
    taps = values.get(TAPS, OWN_TAPS)
    config_ = (*tile, (TAPS, taps)) if algorithm == DIRECT and taps != OWN_TAPS else tile
    is_direct = not values.get(MATRIX_TILES, 0)
    others = (NOT_FOURIER,) if is_direct and "fourier" in values else ()
    guards = (Guard("width", values["width"], values["width"]),)
    return Choice(algorithm, config_, layouts, source=Source.RECORD, rejected=others, guards=guards)


def _check(config: object, values: Mapping[str, int], workload: Workload, names: tuple[set[str], set[str]]) -> None:
    least, most = names
    if set(values) != set(config) or not least <= set(values) <= most:  # type: ignore[call-overload]  # of names
        message = f"the record {config} of {workload[0]} has other knobs than {', '.join(sorted(most))}"
        raise ConfigError(message, hint="tune again")
    if not all(type(value) is int and value >= -1 for value in values.values()):
        raise ConfigError(f"the record {config} of {workload[0]} has knobs that are no numbers", hint="tune again")
    if values.get("winograd", 0) > 0 and workload[-1] is False:
        message = f"the record {config} of {workload[0]} is of a transform that cannot compute it"
        raise ConfigError(message, hint="tune again")


def _algorithm_of(values: Mapping[str, int], workload: Workload) -> str:
    """The algorithm that the knobs of a contraction name."""
    own = ALGORITHMS[workload[0]]
    by = {WINOGRAD: "winograd", FOURIER: "fourier", f"{own.partition('.')[0]}.{MATRIX_TILES}": MATRIX_TILES}
    return next((name for name, knob in by.items() if values.get(knob, 0) > 0), own)


def number_of(entity: object) -> int | None:  # an entity of a configuration
    """The value of a knob; of annotations of two loops the bits that unroll them; None: neither."""
    anns = tuple(getattr(entity, "anns", ()))
    if len(anns) == 2 and set(anns) <= set(ANNOTATIONS):
        return 2 * ANNOTATIONS.index(anns[0]) + ANNOTATIONS.index(anns[1])
    return getattr(entity, "val", None)


def annotations_of(taps: int) -> tuple[str, str]:
    """The annotations of the loops over kh and kw of such bits."""
    return ANNOTATIONS[taps >> 1], ANNOTATIONS[taps & 1]


def _layouts_of(values: Mapping[str, int], workload: Workload) -> tuple[str, ...]:
    """The layouts of a configuration in other blocks than the workload's; () where they are the same."""
    if workload[0] not in IN_BLOCKS:
        return ()
    own, is_by_channel = own_blocks(workload), workload[0] == IN_BLOCKS[1]
    inner, outer = (values.get(name) or block for name, block in zip(BLOCKS, own, strict=True))
    if is_by_channel and inner != outer:
        message = f"the record of {workload[0]} has blocks of {inner} and {outer} channels, which are the same channels"
        raise ConfigError(message, hint="tune again")
    return () if (inner, outer) == own else layouts_in(workload[0], (inner, outer))


def own_blocks(workload: Workload) -> Blocks:
    """Channels of a block of a convolution's data and of its result; of a product 0 and outputs of a block."""
    return (0 if workload[0] == TUNED[PACKED] else workload[1][1][-1]), workload[2][1][-1]


def blocks_of(choice: Choice) -> Blocks:
    """The same of the layouts that a choice names; zeros where it names none."""
    if not choice.layouts:
        return 0, 0
    data, weight, result = map(layout, choice.layouts)
    return (data.block("C"), result.block("C")) if data.block("C") else (0, weight.block("N"))


def packed_layouts(block: int) -> tuple[str, str, str]:
    """The layouts of data, weight and result of a product with blocks of so many outputs."""
    return "NC", f"NC{block}n", "NC"


def layouts_in(task: str, blocks: Blocks) -> tuple[str, str, str]:
    """The layouts of data, weight and result of a contraction in these blocks."""
    inner, outer = blocks
    if task == TUNED[PACKED]:
        return packed_layouts(outer)
    kernel = f"OIHW1i{outer}o" if task == IN_BLOCKS[1] else f"OIHW{inner}i{outer}o"
    return f"NCHW{inner}c", kernel, f"NCHW{outer}c"
