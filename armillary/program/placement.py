"""Places of the values of a run program: offsets in the arena, images that are shared, parts that lie in their joins.

In: a program whose values have lifetimes, and the alignment of its target. Out: the program whose storages have places;
slots are numbered in the order of values. Invariant: two transients that are alive at the same time share nothing but
what a view or a join means. With sizes nothing is planned here: places are decided when sizes are bound, by the same
algorithm in C (runtime/native/arm_sizes.c).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from armillary.base.dtype import DType
from armillary.program.arena import ALIGNMENT, Buffer, Image, plan_memory, share_images
from armillary.program.lifetimes import Span, lifetimes
from armillary.program.nodes import Lifetime, Move, Program, Statement, Storage, Value, bodies
from armillary.target.texture import BUFFER, image_size


def place(program: Program, alignment: int = ALIGNMENT) -> Program:
    """The program with a place for each value; arena offsets are multiples of `alignment` bytes."""
    owners = _owners(program)
    planned = {slot for slot, value in owners.items() if value.storage.lifetime is Lifetime.TRANSIENT}
    images = {slot for slot, value in owners.items() if value.storage.scope != BUFFER}
    spans = lifetimes(program)
    if program.sizes:
        return _numbered(program, lambda old: replace(old, place=None) if old.slot in planned - images else old)
    offsets = _offsets(program, {s: owners[s] for s in owners if s in planned - images}, spans, alignment)
    sizes = {slot: image_size(owners[slot].storage.scope, _numbers(owners[slot])) for slot in sorted(images)}
    shared = _shared_images({s: (owners[s], sizes[s], spans[s]) for s in sizes if s in planned})

    def placed(old: Storage) -> Storage:
        width = sizes[old.slot][1] if old.slot in sizes else 0
        return replace(old, slot=shared.get(old.slot, old.slot), place=offsets.get(old.slot, -1), width=width)

    return _numbered(program, placed)


def arena_bytes(program: Program) -> int:
    """Bytes of the arenas of all devices, as far as they were planned when compiling."""
    ends: dict[int, int] = {}
    for value in program.values:
        at, device = value.storage.place, value.storage.device
        if at is not None and at >= 0:
            end = at + -(-_bytes(value) // ALIGNMENT) * ALIGNMENT
            ends[device] = max(ends.get(device, 0), end)
    return sum(ends.values())


def _owners(program: Program) -> dict[int, Value]:
    """The first value of each slot."""
    owners: dict[int, Value] = {}
    for value in program.values:
        owners.setdefault(value.storage.slot, value)
    return owners


def _numbers(value: Value) -> tuple[int, ...]:
    return tuple(dim for dim in value.shape if isinstance(dim, int))


def _bytes(value: Value) -> int:
    return math.prod(_numbers(value)) * DType(value.dtype).bytes


def _offsets(
    program: Program, inside: Mapping[int, Value], spans: Mapping[int, Span], alignment: int
) -> dict[int, int]:
    """The place of each slot in the arena of its device."""
    parts = _parts_in_place(program, inside, alignment)
    alive = dict(spans)
    for slot, (whole, _) in parts.items():  # the whole lives from its first part on
        alive[whole] = min(alive[whole][0], alive[slot][0]), max(alive[whole][1], alive[slot][1])
    offsets: dict[int, int] = {}
    for device in dict.fromkeys(value.storage.device for value in inside.values()):  # an arena on each
        own = [slot for slot, v in inside.items() if v.storage.device == device and slot not in parts]
        room = [-(-_bytes(inside[slot]) // alignment) * alignment for slot in own]
        plan = plan_memory([Buffer(size, *alive[slot]) for size, slot in zip(room, own)])
        offsets.update(zip(own, plan.offsets, strict=True))
    return offsets | {slot: offsets[whole] + offset for slot, (whole, offset) in parts.items()}


def _parts_in_place(program: Program, inside: Mapping[int, Value], alignment: int) -> dict[int, tuple[int, int]]:
    """Slots that can be written right into a join that reads them: part -> (whole, byte offset).

    A slot goes into the first join that reads it, if that is planned in the arena.
    """
    values = {v.name: v for v in program.values}
    parts: dict[int, tuple[int, int]] = {}
    for move in _moves(program.body):
        whole = values[move.output].storage.slot
        if move.kind != "join" or whole not in inside:
            continue
        offset = 0
        for part in (values[name] for name in move.inputs):
            slot = part.storage.slot
            if slot in inside and slot not in parts and offset % alignment == 0:
                parts[slot] = (whole, offset)
            offset += _bytes(part)
    return {slot: _outermost(parts, slot) for slot in parts}


def _moves(body: Sequence[Statement]) -> Iterator[Move]:
    for statement in body:
        if isinstance(statement, Move):
            yield statement
        for part in bodies(statement):
            yield from _moves(part)


def _outermost(parts: Mapping[int, tuple[int, int]], slot: int) -> tuple[int, int]:
    """The join that no other contains, and the offset in it: joins of joins share one place."""
    whole, offset = parts[slot]
    while whole in parts:
        whole, more = parts[whole]
        offset += more
    return whole, offset


def _shared_images(images: Mapping[int, tuple[Value, tuple[int, int], Span]]) -> dict[int, int]:
    """For each image the slot in whose memory it lies: images that are never alive together may share one."""
    rows = [Image(width, DType(v.dtype).bits, height, *span) for v, (height, width), span in images.values()]
    slots = list(images)
    return {slot: slots[first] for slot, first in zip(slots, share_images(rows), strict=True)}


def _numbered(program: Program, change: Callable[[Storage], Storage]) -> Program:
    """The program whose storages are changed, slots numbered in the order of values."""
    numbers: dict[int, int] = {}
    values = []
    for value in program.values:
        storage = change(value.storage)
        slot = numbers.setdefault(storage.slot, len(numbers))
        values.append(replace(value, storage=replace(storage, slot=slot)))
    return replace(program, values=tuple(values))
