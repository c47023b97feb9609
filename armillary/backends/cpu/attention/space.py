"""What attention by blocks of rows can choose from: the rows of a block, the tiles of scores and of the result.

In: a workload of attention, and a `CpuModel`. Out: `PREFILL`, its space; a `Plan`, the explanation; who refuses.
Invariant: no tensor expression is imported; prefill.py and decode.py make the loops. One choice is for both products,
as a block of rows goes through both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from armillary.backends.cpu.cost.model import VECTORS, Estimate, Nest, Tile, near_rate, tile_estimate
from armillary.backends.cpu.space import Algorithm, Config, Weighed, agreeing, chosen
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.base.extent import typical
from armillary.ops.nn.attention import AttentionAttrs, Sizes, sizes_of
from armillary.target.choice import Choice, Cost, Source
from armillary.target.cpu import CpuModel, cpu_model

MIN_ROWS = 4  # rows from which packing the keys pays
SOFTMAX_CYCLES = 20.0  # for a vector of scores: maximum, exponential and sum
RANKED_AFTER = 1.001  # times the default's cycles: those of another plan, where the model of costs does not decide
SHOWN = 4  # plans beside the one that is taken
KNOBS = ("rows", "keys", "features")


@dataclass(frozen=True)
class Plan:
    """`rows` query rows at a time; `keys` and `features` vectors wide tiles of scores and of the result."""

    rows: int
    keys: int
    features: int
    lanes: int
    feature_lanes: int

    def config(self) -> Config:
        """By the names of the knobs."""
        return tuple(zip(KNOBS, (self.rows, self.keys, self.features), strict=True))


def plan_of(size: Sizes, cpu: CpuModel, lanes: int, config: Config = ()) -> Plan:
    """The block of rows and the tiles, among those that agree with what is given: by the cost model on two FMA ports;
    one is busy with any, so padding decides."""
    if config:
        agreeing = [plan for plan, _ in ranked_plans(size, cpu, lanes) if set(config) <= set(plan.config())]
        if agreeing:
            return agreeing[0]
    return _default(size, cpu, lanes)


@lru_cache(maxsize=256)
def ranked_plans(size: Sizes, cpu: CpuModel, lanes: int) -> tuple[tuple[Plan, float], ...]:
    """Every plan with its cycles, first the default, then the least."""
    own, (width, blocks, chunks) = _default(size, cpu, lanes), _extents(size, lanes)
    least = _cycles(size, cpu, own, blocks, chunks)
    best = {own: least}
    for rows in range(1, _most_rows(size, cpu) + 1):
        for keys in _fitting(rows, blocks, cpu):
            for features in _fitting(rows, chunks, cpu):
                plan = Plan(rows, keys, features, lanes, width)
                cycles = _cycles(size, cpu, plan, blocks, chunks)
                best.setdefault(plan, max(cycles, RANKED_AFTER * least))
    return tuple(sorted(best.items(), key=lambda row: row[1]))


def _extents(size: Sizes, lanes: int) -> tuple[int, int, int]:
    """Lanes of a vector of features; vectors of keys, and of features."""
    width = next(w for w in (lanes, lanes // 2, lanes // 4) if w and size.e % w == 0)
    return width, -(-size.s // lanes), max(size.e // width, 1)


def _most_rows(size: Sizes, cpu: CpuModel) -> int:
    return min(max(size.t, 1), (cpu.vector_registers - 3) // 2)


def _fitting(rows: int, chunks: int, cpu: CpuModel) -> list[int]:
    """Vectors side by side of a tile of so many rows that fit the registers."""
    return [v for v in VECTORS if v <= chunks and (rows + 1) * v < cpu.vector_registers]


def _default(size: Sizes, cpu: CpuModel, lanes: int) -> Plan:
    width, blocks, chunks = _extents(size, lanes)
    if cpu.fma_ports == 1:
        most, limit = max(size.t, 1), (cpu.vector_registers - 3) // 2
        rows = min(range(min(most, limit // 2), min(most, limit) + 1), key=lambda r: (-(-size.t // r) * r, -r))
        keys, features = (_widest(count, rows, cpu) for count in (blocks, chunks))
        return Plan(rows, keys, features, lanes, width)
    plans: list[tuple[float, int, Plan]] = []
    for rows in range(1, _most_rows(size, cpu) + 1):
        scores, keys = _best_tile(size, cpu, rows, blocks, size.d)
        mixing, features = _best_tile(size, cpu, rows, chunks, size.s)
        cycles = scores + mixing + _softmax(size, rows, blocks)
        plans.append((cycles, -rows, Plan(rows, keys, features, lanes, width)))
    return min(plans, key=lambda row: row[:2])[2]


def _softmax(size: Sizes, rows: int, blocks: int) -> float:
    return SOFTMAX_CYCLES * -(-size.t // rows) * rows * blocks


def _widest(chunks: int, rows: int, cpu: CpuModel) -> int:
    """The most vectors that divide a row of the result and fit the registers."""
    return max(v for v in range(1, chunks + 1) if chunks % v == 0 and (v == 1 or (rows + 1) * v < cpu.vector_registers))


def _best_tile(size: Sizes, cpu: CpuModel, rows: int, chunks: int, steps: int) -> tuple[float, int]:
    """Cycles of one of the two products of a head, and the vectors in its tile; the last may have fewer."""
    return min((_product(size, cpu, Tile(rows, v), chunks, steps), v) for v in _fitting(rows, chunks, cpu))


def _product(size: Sizes, cpu: CpuModel, tile: Tile, chunks: int, steps: int) -> float:
    """Cycles of one of the two products of a head. Every block of rows reads all keys or all values of it again."""
    again = near_rate(4 * size.s * max(size.d, size.e), cpu)
    nest = Nest(tile.rows, -(-size.t // tile.rows), chunks, steps, again or cpu.memory.l2, again, has_rest=True)
    return tile_estimate(nest, tile, cpu).cycles


def _cycles(size: Sizes, cpu: CpuModel, plan: Plan, blocks: int, chunks: int) -> float:
    """Of one head."""
    scores = _product(size, cpu, Tile(plan.rows, plan.keys), blocks, size.d)
    mixing = _product(size, cpu, Tile(plan.rows, plan.features), chunks, size.s)
    return scores + mixing + _softmax(size, plan.rows, blocks)


def sizes_here(workload: Workload) -> Sizes:
    """The sizes, from the types."""
    attrs = workload.attrs
    assert isinstance(attrs, AttentionAttrs), "the operator's own"
    return sizes_of(attrs, [workload.tensor(n).typical for n in range(3)])


def typical_sizes(size: Sizes) -> Sizes:
    """The sizes, of those that have names the values that cost models take."""
    return Sizes(typical(size.b), typical(size.t), typical(size.s), size.h, size.d, size.e)


def few_rows_refuse(workload: Workload) -> str | None:
    """None, or why a block of a few rows does not compute it without packing."""
    size = sizes_here(workload)
    if str(workload.tensor(0).dtype) != "float32":
        return "only float32 is read in place"
    if workload.attrs.query_layout.index("T") in workload.named:
        return "rows of a named size may be many"
    return None if 0 < size.t < MIN_ROWS and size.e > 0 else f"{size.t} rows pay for packing the keys"


def refuses(workload: Workload) -> str | None:
    """None, or why blocks of rows do not compute it."""
    features, lanes = sizes_here(workload).e, cpu_model(workload.target).lanes
    if str(workload.tensor(0).dtype) != "float32":
        return "only float32 is tiled"
    return None if lanes >= 4 and features % (lanes // 4) == 0 and features >= lanes // 4 > 0 else "too few features"


def plans_of(workload: Workload, cpu: CpuModel) -> tuple[tuple[Plan, float], ...]:
    """Every plan with the cycles of all heads, first the default."""
    size, heads = sizes_here(workload), max(1, sizes_here(workload).b * sizes_here(workload).h)
    return tuple((plan, heads * cycles) for plan, cycles in ranked_plans(size, cpu, cpu.lanes))


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [plan.config() for plan, _ in plans_of(workload, cpu)]


def _pick(workload: Workload, cpu: CpuModel, config: Config = ()) -> Config:
    own = plan_of(sizes_here(workload), cpu, cpu.lanes).config()
    return agreeing(_space(workload, cpu), config)[0] if config else own


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    rows = plans_of(workload, cpu)
    mine = next(cycles for plan, cycles in rows if plan.config() == choice.config)
    shown = [row for row in rows[: SHOWN + 1] if row[0].config() != choice.config][:SHOWN]
    others = tuple(Estimate(f"blocks {_tiles_text(plan.config())}", cycles, "") for plan, cycles in shown)
    return Weighed(Cost(mine, "FMA units"), others)


def _tiles_text(config: Config) -> str:
    rows, keys, features = (value for _, value in config)
    return f"{rows}x{keys} and {rows}x{features}"


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    return "attention by blocks of rows"


def _guarded(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    return {"rows": sizes_here(workload).t}


PREFILL = Algorithm("attention.rows", _space, _pick, _weigh, _title, _guarded)


def stated_config(attrs: AttentionAttrs) -> Config:
    """The knobs that a call's choice states."""
    choice = Choice.parse(attrs.choice)
    return choice.config if choice.algorithm == PREFILL.name else ()


def explain(workload: Workload) -> Explanation:
    """The tiles of the two products, and whose choice they are."""
    choice = chosen(workload, PREFILL)
    assert choice.estimate is not None, "a complete choice has one"
    message = () if choice.source is Source.DEFAULT else (f"by {choice.source.value}, not by the model",)
    hertz = cpu_model(workload.target).memory.ghz * 1e6  # cycles in a millisecond
    milliseconds = round(choice.estimate.cycles / hertz, 6)
    weighed = tuple((r.name, round(r.cycles / hertz, 6)) for r in choice.rejected if not r.reason)
    bound, title = choice.estimate.bound, "attention by blocks of rows"
    return Explanation(title, _tiles_text(choice.config), milliseconds, bound, weighed, message)
