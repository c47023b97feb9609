"""The space of configurations of a template, and single configurations.

In: knobs that a template defines when it runs with a `ConfigSpace`. Out: `ConfigEntity`s by index, which the template
then runs with. Invariant: an index is the mixed-radix number of its entities over the knobs in the order of their
definition, the first one counting fastest, as in Relay-era logs; `len` counts valid points, `range_length` all.
What knobs may be: `transforms.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from armillary import te
from armillary.autotvm.errors import InstantiationError, TuningError
from armillary.autotvm.task.transforms import (
    KINDS,
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    TransformSpace,
    VirtualAxis,
    annotate_space,
    get_factors,
    option_space,
    reorder_space,
    split_space,
)
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.json_types import JsonObject
from armillary.te.stage import static_extent

Filter = Callable[[Any], bool]  # Any: a ConfigEntity
Ints = Array
_ANNOTATION_NUMBERS = {
    name: number
    for number, name in enumerate(
        (
            "none",
            "vec",
            "unroll",
            "blockIdx.x",
            "blockIdx.y",
            "blockIdx.z",
            "threadIdx.x",
            "threadIdx.y",
            "threadIdx.z",
            "vthread",
            "fuse",
        )
    )
}
_MOST_POINTS = 1 << 22  # of a space with a filter, which is asked about every one


class ConfigSpace:
    """What a template's `get_config()` gives while its space is explored: `define_*` add knobs."""

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: dict[str, TransformSpace] = {}
        self.entity_map: dict[str, Entity] = {}
        self.errors: list[str] = []
        self.code_hash: str | None = None
        self.flop = 0.0
        self.unwritten: dict[str, object] = {}  # what knobs are where a record of an earlier space does not say
        self.products: dict[str, int] = {}  # length of the axis that a knob splits
        self._filter: Filter | None = None
        self._valid: Ints | None = None

    @staticmethod
    def axis(var: object) -> VirtualAxis:  # a length, an IterVar, a VirtualAxis
        """An axis by its length."""
        if isinstance(var, VirtualAxis):
            return var
        if isinstance(var, te.IterVar):
            extent = static_extent(var)
            if extent is None:
                raise TuningError(f"the axis {var.var.name} has no known length", hint="tune with fixed shapes")
            return VirtualAxis(extent, var.var.name)
        length = getattr(var, "value", var)
        if not isinstance(length, int | np.integer) or not 1 <= length < 1 << 31:
            raise TuningError(f"an axis of a space is an IterVar or a length below {1 << 31}, got {var!r}")
        return VirtualAxis(int(length))

    reduce_axis = axis

    @boundary("define_split", arguments=True)
    def define_split(self, name: str, axis: object, policy: str = "factors", **options: Any) -> list[VirtualAxis]:
        """A knob that splits an axis; options num_outputs, max_factor, filter, no_tail, candidate (Any: theirs)."""
        whole = self.axis(axis)
        self.products[name] = whole.length
        return self._add(name, lambda: split_space(whole, policy, **options))

    @boundary("define_reorder", arguments=True)
    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[VirtualAxis]:
        """A knob that orders axes; options interval, candidate, spatial, reduce (Any: theirs)."""
        return self._add(name, lambda: reorder_space(axes, policy, **options))

    @boundary("define_annotate", arguments=True)
    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[VirtualAxis]:
        """A knob that unrolls, vectorizes, binds axes or attaches caches; option num_anchor (Any: axes)."""
        return self._add(name, lambda: annotate_space(axes, policy, **options))

    @boundary("define_knob", arguments=True)
    def define_knob(self, name: str, candidate: Sequence[object]) -> None:  # values of the template's
        """A knob that takes one of some values."""
        self._add(name, lambda: option_space(candidate))

    def define_otherwise(self, name: str, value: object) -> None:  # as a log has it, or an entity
        """What a knob is where a template runs without a record; a space and a record keep theirs."""

    def multi_filter(self, filter: Filter) -> None:
        """Leave out the points for which `filter(config)` is false."""
        self._filter, self._valid = filter, None

    def restrict(self, points: Sequence[Mapping[str, object]]) -> None:
        """Leave out the points whose knobs have other values than one of these (Any: of
        `define_knob` the values, of `define_split` tuples)."""
        retained = set(self.indices_of(points))
        self._filter = lambda config: config.index in retained
        self._valid = np.array(sorted(retained), dtype=np.int64)

    def indices_of(self, points: Sequence[Mapping[str, object]]) -> list[int]:
        """The indices of the points whose knobs have these values (Any: as in `restrict`)."""
        places = {n: {_hashable(e.to_json()): i for i, e in enumerate(s)} for n, s in self.space_map.items()}
        return [point2knob([places[n][point[n]] for n in places], self.dims) for point in points]

    def add_flop(self, flop: float) -> None:
        """Count operations that the template does."""
        self.flop += float(getattr(flop, "value", flop))

    def raise_error(self, msg: str) -> None:
        """Refuse the configuration; the trial is over when the template returns."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Whether the template raised no error."""
        return not self.errors

    def check(self) -> None:
        """Raise the first error that the template raised."""
        if self.errors:
            raise InstantiationError(self.errors[0])

    def _add(self, name: str, make: Callable[[], TransformSpace]) -> list[VirtualAxis]:
        Arguments("a knob", TuningError).text("name", name, is_empty_allowed=False)
        space = make()
        if not len(space):
            raise TuningError(f"the knob {name!r} has no value to take: {space}", hint="widen its filter or policy")
        self.space_map[name], self._valid = space, None
        if name not in self.entity_map or not self.is_fallback:  # what `fallback_split` took stays
            self.entity_map[name] = space[0]
        return [VirtualAxis(0, f"{name}.{i}") for i in range(space.num_output)]

    @property
    def dims(self) -> list[int]:
        """How many values each knob has."""
        return [len(space) for space in self.space_map.values()]

    @property
    def range_length(self) -> int:
        """How many points there are, valid or not."""
        return math.prod(self.dims)

    def __len__(self) -> int:
        return self.range_length if self._filter is None else len(self.valid_indices())

    def is_index_valid(self, index: int) -> bool:
        """Whether an index is in the range and passes the filter."""
        if not 0 <= index < self.range_length:
            return False
        return self._filter is None or bool(self._filter(self._entity(index)))

    def valid_indices(self) -> Ints:
        """The indices of all valid points, ascending."""
        if self._filter is None:
            return np.arange(self.range_length)
        if self._valid is None:
            if self.range_length > _MOST_POINTS:
                raise TuningError(
                    f"multi_filter: {self.range_length} points are too many to ask about, at most {_MOST_POINTS} are",
                    hint="filter single knobs: define_split(..., filter=)",
                )
            valid = [i for i in range(self.range_length) if self._filter(self._entity(i))]
            if not valid:
                raise TuningError("multi_filter leaves no point of the space")
            self._valid = np.array(valid, dtype=np.int64)
        return self._valid

    def sample_ints(self, count: int, rng: np.random.Generator | None = None) -> list[int]:
        """Different valid indices at random, at most `count` (all there are, if fewer)."""
        rng = np.random.default_rng() if rng is None else rng
        if self._filter is None and self.range_length > 4 * count:
            result: dict[int, None] = {}
            while len(result) < count:
                result[int(rng.integers(self.range_length))] = None
            return list(result)
        every = self.valid_indices()
        return [int(i) for i in rng.permutation(every)[:count]]

    def random_walk(self, point: int, rng: np.random.Generator | None = None) -> int:
        """A valid index at random that differs from `point` in one knob; `point` itself where there is none."""
        rng = np.random.default_rng() if rng is None else rng
        start, dims = self.point2knob(point), self.dims
        moves = [(place, value) for place, size in enumerate(dims) for value in range(size) if value != start[place]]
        for place, value in rng.permutation(moves):
            moved = point2knob([*start[:place], value, *start[place + 1 :]], dims)
            if self.is_index_valid(moved):
                return moved
        return point

    def subrange_length(self, start: int, end: int) -> int:
        """How many valid points have an index in [start, end)."""
        self._check_range("subrange_length", start, end)
        if self._filter is None:
            return end - start
        every = self.valid_indices()
        return int(np.searchsorted(every, end) - np.searchsorted(every, start))

    def get_rand_index(self, start: int | None = None, end: int | None = None, to_exclude: Sequence[int] = ()) -> int:
        """A valid index of [start, end) at random that is none of `to_exclude`; TuningError where there is none."""
        first, last = start or 0, self.range_length if end is None else end
        self._check_range("get_rand_index", first, last)
        rng = np.random.default_rng()
        if self._filter is None and self.range_length > _MOST_POINTS and not to_exclude:
            return int(rng.integers(first, last))
        every = self.valid_indices()
        left = np.setdiff1d(every[(every >= first) & (every < last)], np.array(to_exclude, dtype=np.int64))
        if not len(left):
            raise TuningError(f"get_rand_index: no valid configuration is left in [{first}, {last})")
        return int(rng.choice(left))

    def get_next_index(self, index: int, n: int = 1, start: int | None = None, end: int | None = None) -> int | None:
        """The n-th valid index behind one (before it, of a negative n) in [start, end); None where there is none."""
        arguments = Arguments("ConfigSpace.get_next_index", TuningError)
        arguments.whole("index", index)
        arguments.whole("n", n)
        first, last = start or 0, self.range_length if end is None else end
        self._check_range("get_next_index", first, last)
        every = self.valid_indices()
        place = int(np.searchsorted(every, index + 1 if n > 0 else index)) + (n - 1 if n > 0 else n)
        result = int(every[place]) if 0 <= place < len(every) else -1
        return result if first <= result < last else None

    def point2knob(self, point: int) -> list[int]:
        """The number of each knob's entity in an index."""
        Arguments("ConfigSpace.point2knob", TuningError).whole("point", point, 0)
        return knob2point(point, self.dims)

    @boundary("ConfigSpace.knob2point", arguments=True)
    def knob2point(self, knob: Sequence[int]) -> int:
        """The index of these numbers of entities."""
        if len(knob) != len(self.dims):
            raise TuningError(f"ConfigSpace.knob2point: {len(knob)} numbers, wanted {len(self.dims)}")
        return point2knob(knob, self.dims)

    def _check_range(self, what: str, start: int, end: int) -> None:
        arguments = Arguments(f"ConfigSpace.{what}", TuningError)
        arguments.whole("start", start, 0, self.range_length)
        arguments.whole("end", end, start, self.range_length)

    def get(self, index: int) -> ConfigEntity:
        """The configuration of an index; TuningError where there is none."""
        Arguments("ConfigSpace.get", TuningError).whole("index", index)
        if not 0 <= index < self.range_length:
            raise TuningError(f"there is no configuration {index}: the space has {self.range_length}")
        result = self._entity(index)
        if self._filter is not None and not self._filter(result):
            raise TuningError(f"configuration {index} is not one of the space: {result}")
        return result

    def _entity(self, index: int) -> ConfigEntity:
        point = knob2point(index, self.dims)
        chosen = {name: space[at] for (name, space), at in zip(self.space_map.items(), point, strict=True)}
        return ConfigEntity(int(index), self.code_hash, chosen)

    def index_of(self, values: Mapping[str, Entity]) -> int:
        """The index of these entities; TuningError names a knob that cannot take its value."""
        point = []
        for name, space in self.space_map.items():
            if name not in values and name not in self.unwritten:
                raise TuningError(f"the configuration has no knob {name!r}", hint=f"it has {', '.join(values)}")
            wanted = _plain(values[name].to_json() if name in values else self.unwritten[name])
            at = next((i for i, entity in enumerate(space) if _plain(entity.to_json()) == wanted), None)
            if at is None:
                raise TuningError(f"the knob {name!r} cannot be {values.get(name)}", hint=repr(space))
            point.append(at)
        return point2knob(point, self.dims)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entity_map)

    def __contains__(self, name: str) -> bool:
        return name in self.entity_map

    def __getitem__(self, name: str) -> Any:  # Any: the entity, whose kind the template knows
        if name not in self.entity_map:
            raise TuningError(f"there is no knob {name!r}", hint=f"there are {', '.join(self.entity_map)}")
        return self.entity_map[name]

    def __repr__(self) -> str:
        rows = (f"  {i:2d} {name}: {space}\n" for i, (name, space) in enumerate(self.space_map.items()))
        return f"ConfigSpace (len={len(self)}, range_length={self.range_length}, space_map=\n{''.join(rows)})"


def _hashable(value: object) -> Any:  # Any: JSON values
    return tuple(value) if isinstance(value, list) else value


def _plain(value: object) -> Any:  # Any: JSON values
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def knob2point(index: int, dims: Sequence[int]) -> list[int]:
    """The number of each knob's entity in an index."""
    point = []
    for size in dims:
        point.append(int(index % size))
        index //= size
    return point


def point2knob(point: Sequence[int], dims: Sequence[int]) -> int:
    """The index of these numbers of entities."""
    index = 0
    for at, size in zip(reversed(point), reversed(dims), strict=True):
        index = index * size + int(at)
    return index


class ConfigEntity(ConfigSpace):
    """One configuration: a template that runs with it gets the entities instead of defining a space."""

    def __init__(self, index: int, code_hash: str | None, entity_map: Mapping[str, Entity]) -> None:
        super().__init__()
        arguments = Arguments("ConfigEntity", TuningError)
        arguments.whole("index", index)
        arguments.kind("entity_map", entity_map, Mapping, "an entity for each knob's name")
        for name, entity in entity_map.items():
            arguments.kind(f"entity_map[{name!r}]", entity, Entity, "an entity", "such as SplitEntity([-1, 8])")
        self.index, self.code_hash, self.entity_map = index, code_hash, dict(entity_map)
        self.origin = ""  # the log and the line that it was read from

    def _add(self, name: str, make: Callable[[], TransformSpace]) -> list[VirtualAxis]:
        if name not in self.entity_map:
            raise InstantiationError(
                f"the configuration has no knob {name!r}, which the template defines",
                hint="it was tuned with another version of the template; tune again",
            )
        entity = self.entity_map[name]
        count = 0 if isinstance(entity, OtherOptionEntity) else len(entity.to_json())
        return [VirtualAxis(0, f"{name}.{i}") for i in range(count)]

    def __len__(self) -> int:
        return 1

    def get_flatten_feature(self) -> Ints:
        """The configuration as float32 numbers."""
        return np.array([number for e in self.entity_map.values() for number in _numbers(e)], dtype=np.float32)

    def get_other_option(self) -> JsonObject:
        """The values of knobs that `define_knob` made (Any: the template's)."""
        return {name: e.val for name, e in self.entity_map.items() if isinstance(e, OtherOptionEntity)}

    def to_json_dict(self) -> JsonObject:
        """As a log has it (Any: JSON values)."""
        entities = [[name, e.kind, e.to_json()] for name, e in self.entity_map.items()]
        return {"index": int(self.index), "code_hash": self.code_hash, "entity": entities}

    @staticmethod
    def from_json_dict(json_dict: Mapping[str, Any]) -> ConfigEntity:
        """What `to_json_dict` gave; TuningError for what is none."""
        try:
            rows = {str(name): _entity(kind, value) for name, kind, value in json_dict["entity"]}
            return ConfigEntity(int(json_dict["index"]), json_dict.get("code_hash"), rows)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise TuningError(f"no configuration of a log: {type(error).__name__} {error}") from None

    def key(self) -> str:
        """The entities as text: equal for equal configurations."""
        return str([[name, e.kind, _plain(e.to_json())] for name, e in self.entity_map.items()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self.index == other.index and self.key() == other.key()

    def __hash__(self) -> int:
        return hash((self.index, self.key()))

    def __repr__(self) -> str:
        return f"{[(name, e) for name, e in self.entity_map.items()]},{self.code_hash},{self.index}"


def _entity(kind: str, value: object) -> Entity:  # a JSON value
    """A knob's value of a log; ValueError where no tool writes such a one."""
    value = tuple(value) if isinstance(value, list) else value
    objection = _OBJECTIONS[kind](value)
    if objection:
        raise ValueError(f"{value!r} is no {objection}")
    return KINDS[kind](value)


def _objection_to_split(value: object) -> str:
    sizes = value if isinstance(value, tuple) else ()
    # 0: not split; records of Winograd's algorithm on OpenCL have such
    is_good = sizes and all(type(n) is int and (n == -1 or 0 <= n < 1 << 31) for n in sizes)
    return "" if is_good else "list of sizes"


def _objection_to_order(value: object) -> str:
    places = value if isinstance(value, tuple) else (None,)
    is_good = all(type(n) is int for n in places) and sorted(places) == list(range(len(places)))
    return "" if is_good else "order of axes"


def _objection_to_annotations(value: object) -> str:
    is_good = isinstance(value, tuple) and all(type(a) is int or (isinstance(a, str) and a) for a in value)
    return "" if is_good else "list of annotations"


_OBJECTIONS: dict[str, Callable[[object], str]] = {
    "sp": _objection_to_split,
    "re": _objection_to_order,
    "an": _objection_to_annotations,
    "ot": lambda value: "",
}


def _numbers(entity: Entity) -> list[float]:
    match entity:
        case SplitEntity(size):
            return [float(n) for n in size]
        case ReorderEntity(perm):
            return [float(n) for n in perm]
        case AnnotateEntity(anns):
            rows = np.eye(len(_ANNOTATION_NUMBERS))
            return [float(x) for a in anns for x in (rows[_ANNOTATION_NUMBERS[a]] if isinstance(a, str) else [a])]
        case OtherOptionEntity(value):
            return [_number(value)]


def _number(value: object) -> float:  # a knob's value
    """A number for a knob's value; texts get one that stays the same from run to run."""
    if isinstance(value, str):
        return float(sum((i + 1) * b for i, b in enumerate(value.encode())) % 4093)
    return float(value) if isinstance(value, bool | int | float | np.number) else float(len(str(value)))


class FallbackConfigEntity(ConfigSpace):
    """What a template gets where no record is found: it defines its space, and may state what to take."""

    is_fallback = True

    def define_otherwise(self, name: str, value: object) -> None:  # as in ConfigSpace.define_otherwise
        """Take `value` for a knob; TuningError lists what it may be."""
        wanted = _plain(value.to_json() if isinstance(value, Entity) else value)
        space = self.space_map.get(name)
        for entity in () if space is None else space:
            if _plain(entity.to_json()) == wanted:
                self.entity_map[name] = entity
                return
        message = f"there are {', '.join(self.space_map)}" if space is None else repr(space)
        raise TuningError(f"the knob {name!r} cannot be {value!r}", hint=message)

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Take for each part, from the innermost on, the largest factor up to its bound (-1: none)."""
        left, sizes = self.products[name], []
        for bound in reversed(constraints):
            fitting = [f for f in get_factors(left) if bound == -1 or f <= bound]
            if not fitting:
                raise TuningError(f"the knob {name!r} has no split within {list(constraints)}")
            sizes.append(fitting[-1])
            left //= fitting[-1]
        self.entity_map[name] = SplitEntity(sizes[::-1])

    def fallback_with_reference_log(self, ref_log: Sequence[Any]) -> None:
        """Take the knobs of the record whose splits have most factors in common (Any: pairs of a log)."""
        best, most = None, 0.0
        for tuned, _ in ref_log:
            score = sum(_in_common(n, tuned.config, name) for name, n in self.products.items())
            if score > most:
                best, most = tuned.config, score
        if best is None:
            return
        for name in self.space_map:
            if name in self.products:
                self.fallback_split(name, [-1, *best[name].size[1:]])
            else:
                self.entity_map[name] = best[name]

    def __setitem__(self, name: str, entity: Entity) -> None:
        self.entity_map[name] = entity


def _in_common(length: int, config: ConfigEntity, name: str) -> float:
    own, entity = get_factors(length), config.entity_map.get(name)
    if not isinstance(entity, SplitEntity):
        return 0.0
    other = get_factors(max(1, abs(math.prod(entity.size))))
    return len(set(own) & set(other)) / len(own)
