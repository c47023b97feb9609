"""Random numbers from a key: random.threefry_generate, random.threefry_split; `relay.random.uniform`, `normal`.

In: a key of ten words: four of the cipher's key, two of path, two of counter (the last counts), two of where the path
goes on. Out: numbers with the next key, or two keys. Invariant: a key gives the same numbers on every machine; the
cipher is Threefry-4x64 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), block i
being that of the path and counter with i added to each word. A counter or a path that is used up gives a new path or a
new key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, need_tensor, reshape_to
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem, TupleWrapper, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

GENERATE, SPLIT = "random.threefry_generate", "random.threefry_split"
_WORDS, _ROUNDS, _LENGTH = 4, 20, 10
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_ORDER = (0, 3, 2, 1)
_PARITY = 0x1BD11BDAA9FC1A22
_FULL, _FIRST, _SECOND = (1 << 64) - 1, 1 << 63, 1 << 62
_KEY = TensorType((_LENGTH,), DType("uint64"))


class _Word:
    """An expression of 64-bit words, with the operators that the cipher needs."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __add__(self, other: _Word) -> _Word:
        return _Word(call("add", self.expr, other.expr))

    def __xor__(self, other: _Word) -> _Word:
        return _Word(call("bitwise_xor", self.expr, other.expr))

    def __or__(self, other: _Word) -> _Word:
        return _Word(call("bitwise_or", self.expr, other.expr))


W = TypeVar("W", Array, _Word)


@record
class _Tools(Generic[W]):
    """What words can do besides `+ ^ |`: of numpy's arrays, or of expressions."""

    word: Callable[[int], W]
    numbers: Callable[[int], W]  # 0, 1, … up to a count
    left: Callable[[W, int], W]
    right: Callable[[W, int], W]
    below: Callable[[W, int], W]
    is_zero: Callable[[W], W]
    choose: Callable[[W, W, W], W]
    joined: Callable[[Sequence[W]], W]
    blocks: Callable[[Sequence[W], int], W]  # the words of each block one behind the other


_ARRAYS = _Tools[Array](
    word=lambda value: np.array([value], np.uint64),
    numbers=lambda count: np.arange(count, dtype=np.uint64),
    left=lambda a, by: np.left_shift(a, np.uint64(by)),
    right=lambda a, by: np.right_shift(a, np.uint64(by)),
    below=lambda a, bound: np.less(a, np.uint64(bound)),
    is_zero=lambda a: np.equal(a, np.uint64(0)),
    choose=np.where,
    joined=np.concatenate,
    blocks=lambda words, count: np.stack([np.broadcast_to(w, (count,)) for w in words], axis=1).reshape(-1),
)


def _constant(value: int) -> _Word:
    return _Word(const(np.array([value], np.uint64)))


def _blocks(words: Sequence[_Word], count: int) -> _Word:
    wide = [call("broadcast_to", w.expr, shape=(count,)) for w in words]
    return _Word(reshape_to(call("stack", Tuple(tuple(wide)), axis=1), (count * _WORDS,)))


_CALLS = _Tools[_Word](
    word=_constant,
    numbers=lambda count: _Word(call("arange", start=0, stop=count, step=1, dtype="uint64")),
    left=lambda a, by: _Word(call("left_shift", a.expr, _constant(by).expr)),
    right=lambda a, by: _Word(call("right_shift", a.expr, _constant(by).expr)),
    below=lambda a, bound: _Word(call("less", a.expr, _constant(bound).expr)),
    is_zero=lambda a: _Word(call("equal", a.expr, _constant(0).expr)),
    choose=lambda condition, a, b: _Word(call("where", condition.expr, a.expr, b.expr)),
    joined=lambda words: _Word(call("concatenate", Tuple(tuple(w.expr for w in words)), axis=0)),
    blocks=_blocks,
)


def _row(*parts: Sequence[W]) -> list[W]:
    """The words of all parts, in order."""
    return [word for part in parts for word in part]


def _threefry(do: _Tools[W], key: Sequence[W], counter: Sequence[W]) -> list[W]:
    """The four words of each block: the cipher applied to the counter's words."""
    result: list[W] = list(counter)
    last: W = do.word(_PARITY)
    for part in key:
        last = last ^ part
    full: list[W] = _row(key, [last])
    for group in range(_ROUNDS // 4 + 1):
        keys: list[W] = [full[(group + k) % len(full)] for k in range(_WORDS)]
        keys[-1] = keys[-1] + do.word(group)
        result = [word + part for word, part in zip(result, keys, strict=True)]
        for number in range(4 if group < _ROUNDS // 4 else 0):
            for pair, turn in enumerate(_ROTATIONS[(group * 4 + number) % len(_ROTATIONS)]):
                a, b = result[2 * pair], result[2 * pair + 1]
                total = a + b
                result[2 * pair], result[2 * pair + 1] = total, total ^ (do.left(b, turn) | do.right(b, 64 - turn))
            result = [result[k] for k in _ORDER]
    return result


def _moved_on(do: _Tools[W], a: W, b: W) -> tuple[W, W]:
    """The mark of where the path goes on, 128 bits, one bit further."""
    return do.right(a, 1), do.right(b, 1) | do.left(a, 63)


def _generated(do: _Tools[W], key: Sequence[W], count: int) -> tuple[W, W]:
    """The next key, and so many numbers."""
    zero: W = do.word(0)
    ones: W = do.word(_FULL)
    fresh: list[W] = _row(_threefry(do, key[:4], [ones] * 4), [zero] * 4, [do.word(_FIRST), zero])
    turned: list[W] = _row(key[:4], [key[4] | key[8], key[5] | key[9], zero, zero], _moved_on(do, key[8], key[9]))
    no_path, room = do.is_zero(key[8] | key[9]), do.below(key[7], _FULL - count)
    pairs = zip(key, fresh, turned, strict=True)
    now: list[W] = [do.choose(room, k, do.choose(no_path, f, t)) for k, f, t in pairs]
    whole, parts = count // _WORDS, list[W]()
    if whole:
        counter = [word + do.numbers(whole) for word in now[4:8]]
        parts.append(do.blocks(_threefry(do, now[:4], counter), whole))
    used = whole * _WORDS
    if count % _WORDS:
        counter = _row(now[4:7], [now[7] + do.word(used)])
        parts += _threefry(do, now[:4], counter)[: count % _WORDS]
        used += _WORDS
    after: list[W] = _row(now[:6], [zero, now[7] + do.word(used)], now[8:])
    return do.joined(after), do.joined(parts)


def _split(do: _Tools[W], key: Sequence[W]) -> tuple[W, W]:
    """Two keys: the path goes on with a zero, and with a one."""
    zero, second, no_path = do.word(0), do.word(_SECOND), do.is_zero(key[8] | key[9])
    words: list[W] = _threefry(do, key[:4], key[4:8])
    mark: tuple[W, W] = _moved_on(do, key[8], key[9])

    def one(first: W, path: Sequence[W]) -> W:
        fresh: list[W] = _row(words, [first, zero, zero, zero, second, zero])
        longer: list[W] = _row(key[:4], path, key[6:8], mark)
        return do.joined([do.choose(no_path, f, o) for f, o in zip(fresh, longer, strict=True)])

    return one(zero, key[4:6]), one(do.word(_FIRST), [key[4] | key[8], key[5] | key[9]])


def _key_words(key: Expr) -> list[_Word]:
    return [_Word(call("strided_slice", key, begin=(k,), end=(k + 1,), strides=(1,))) for k in range(_LENGTH)]


def _check_key(name: str, key: Type) -> None:
    if need_tensor(name, key, "key") != _KEY:
        raise TypeMismatch(f"{name}: the key is {key}, wanted {_KEY}", hint="make one with random.threefry_key(seed)")


@record
class ThreefryAttrs:
    """The shape of the numbers."""

    out_shape: tuple[int, ...]


threefry_generate = Op(GENERATE, kind=Kind.OPAQUE, inputs=("key",), doc="The next key, and random 64-bit numbers.")
threefry_generate.attrs(ThreefryAttrs)
threefry_split = Op(SPLIT, kind=Kind.OPAQUE, inputs=("key",), doc="Two keys of one, with different numbers.")


@threefry_generate.infer
def _infer_generate(attrs: ThreefryAttrs, key: Type) -> TupleType:
    _check_key(GENERATE, key)
    return TupleType((_KEY, TensorType(attrs.out_shape, DType("uint64"))))


@threefry_split.infer
def _infer_split(attrs: None, key: Type) -> TupleType:
    _check_key(SPLIT, key)
    return TupleType((_KEY, _KEY))


@threefry_generate.reference
def _reference_generate(attrs: ThreefryAttrs, key: Array) -> tuple[Array, ...]:
    count = math.prod(attrs.out_shape)
    if not count:
        return key, np.zeros(attrs.out_shape, np.uint64)
    after, numbers = _generated(_ARRAYS, [key[k : k + 1] for k in range(_LENGTH)], count)
    return after, numbers.reshape(attrs.out_shape)


@threefry_split.reference
def _reference_split(attrs: None, key: Array) -> tuple[Array, ...]:
    return _split(_ARRAYS, [key[k : k + 1] for k in range(_LENGTH)])


@threefry_generate.decompose
def _decompose_generate(attrs: ThreefryAttrs, key: Expr) -> Expr:
    count = math.prod(attrs.out_shape)
    if not count:
        return Tuple((key, const(np.zeros(attrs.out_shape, np.uint64))))
    after, numbers = _generated(_CALLS, _key_words(key), count)
    return Tuple((after.expr, reshape_to(numbers.expr, attrs.out_shape)))


@threefry_split.decompose
def _decompose_split(attrs: None, key: Expr) -> Expr:
    left, right = _split(_CALLS, _key_words(key))
    return Tuple((left.expr, right.expr))


@threefry_generate.samples
def _samples_generate() -> Iterator[Sample]:
    yield Sample(ThreefryAttrs((2, 3)), (key_array(7),))
    spent = np.array([1, 2, 3, 4, 0, 0, 0, _FULL - 1, _FIRST, 0], np.uint64)
    yield Sample(ThreefryAttrs((8,)), (spent,))
    yield Sample(ThreefryAttrs((3,)), (np.array([1, 2, 3, 4, 5, 6, 0, _FULL - 1, 0, 0], np.uint64),))


@threefry_split.samples
def _samples_split() -> Iterator[Sample]:
    yield Sample(None, (key_array(7),))
    yield Sample(None, (np.array([1, 2, 3, 4, 5, 6, 0, 9, 0, 0], np.uint64),))


@threefry_generate.bad_samples
def _bad_generate() -> Iterator[BadSample]:
    yield BadSample(ThreefryAttrs((2,)), (np.zeros(9, np.uint64),), "wanted Tensor[(10,), uint64]")


@threefry_split.bad_samples
def _bad_split() -> Iterator[BadSample]:
    yield BadSample(None, (np.zeros(10, np.int64),), "wanted Tensor[(10,), uint64]")


def key_array(seed: int) -> Array:
    """The key of a seed, as numbers."""
    words = [(seed >> (64 * k)) & _FULL for k in range(_WORDS)]
    return np.array([*words, 0, 0, 0, 0, _FIRST, 0], np.uint64)


@boundary("random.threefry_key", arguments=True)
def threefry_key(seed: int) -> Constant:
    """The key of a seed, as a constant."""
    return const(key_array(int(seed)))


def _standard(key: Expr, shape: Sequence[int], dtype: str) -> tuple[Expr, Expr]:
    """The next key, and numbers in [0, 1): their leading bits as a fraction."""
    if dtype not in ("float32", "float64"):
        raise TypeMismatch(f"random.uniform: dtype {dtype}, wanted float32 or float64")
    bits = {"float32": 24, "float64": 53}[dtype]
    both = call(GENERATE, key, out_shape=tuple(shape))
    whole = call("cast", _CALLS.right(_Word(TupleGetItem(both, 1)), 64 - bits).expr, dtype=dtype)
    scale = const(np.asarray(2.0**-bits, dtype))
    return TupleGetItem(both, 0), call("multiply", whole, scale)


def _like(value: Expr | float, dtype: str) -> Expr:
    return value if isinstance(value, Expr) else const(np.asarray(value, dtype))


@boundary("random.uniform", arguments=True)
def uniform(
    key: Expr, shape: Sequence[int], dtype: str = "float32", low: Expr | float = 0.0, high: Expr | float = 1.0
) -> TupleWrapper:
    """The next key, and numbers evenly spread over [low, high)."""
    after, numbers = _standard(key, shape, dtype)
    start, end = _like(low, dtype), _like(high, dtype)
    return TupleWrapper(Tuple((after, call("add", call("multiply", numbers, call("subtract", end, start)), start))), 2)


@boundary("random.normal", arguments=True)
def normal(
    key: Expr, shape: Sequence[int], dtype: str = "float32", mean: Expr | float = 0.0, scale: Expr | float = 1.0
) -> TupleWrapper:
    """The next key, and normally distributed numbers, by the transform of Box and Muller."""
    halves = call(SPLIT, key)
    after, first = _standard(TupleGetItem(halves, 0), shape, dtype)
    _, second = _standard(TupleGetItem(halves, 1), shape, dtype)
    one, twice = const(np.asarray(1.0, dtype)), const(np.asarray(2 * math.pi, dtype))
    radius = call("sqrt", call("multiply", call("log", call("subtract", one, first)), const(np.asarray(-2.0, dtype))))
    wave = call("cos", call("multiply", second, twice))
    spread = call("multiply", call("multiply", radius, wave), _like(scale, dtype))
    return TupleWrapper(Tuple((after, call("add", spread, _like(mean, dtype)))), 2)


@boundary("random.multinomial", arguments=True)
def multinomial(key: Expr, probs: Expr, num_samples: int) -> TupleWrapper:
    """The next key, and positions drawn by weights along the last axis; weights below zero count as zero."""
    ty = probs.checked_type
    if not isinstance(ty, TensorType) or not ty.dtype.is_float or not ty.ndim or num_samples < 1:
        raise TypeMismatch(f"random.multinomial: {num_samples} samples of weights {ty}, wanted floats along an axis")
    weights = call("maximum", probs, const(np.asarray(0.0, str(ty.dtype))))
    sums = call("cumsum", weights, axis=-1)
    total = call("sum", weights, axis=(-1,), keepdims=True)
    after, numbers = _standard(key, (*ty.static[:-1], num_samples), str(ty.dtype))
    bounds = call("expand_dims", call("divide", sums, total), axis=-2)
    passed = call("greater_equal", call("expand_dims", numbers, axis=-1), bounds)
    counts = call("sum", call("cast", passed, dtype="int32"), axis=(-1,))
    most = const(np.asarray(ty.static[-1] - 1, "int32"))
    return TupleWrapper(Tuple((after, call("minimum", counts, most))), 2)


FUNCTIONS: dict[str, Callable[..., Expr | TupleWrapper]] = {
    "random.multinomial": multinomial,
    "random.normal": normal,
    "random.threefry_key": threefry_key,
    "random.uniform": uniform,
}
