"""XGBTuner: gradient-boosted trees learn from trials which configurations are fast; annealing proposes the next ones.

In: a task; features of configurations (`itervar`, `curve`: of their loops; `knob`: of their entities); a loss (`reg`,
`rank`, `rank-binary`). Out: trials in plans of `plan_size` (less in small spaces), a twentieth of all at random; the
first plan is what a model of costs expects most of and, for the other half, configurations far from one another.
Invariant: failures are learned as zero speed; the same seed and results give the same proposals. Needs xgboost (the
extra `tune`). The loop around it: `tuner.py`; features: `autotvm/loop_feature.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureOption, MeasureResult
from armillary.autotvm.task.space import ConfigSpace, knob2point
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.feature_reader import FEATURES, FeatureReader, features_of, with_estimate
from armillary.autotvm.tuner.tuner import Pairs, Tuner
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.errors import UnsupportedError

Numbers = Array
logger = logging.getLogger("autotvm")
LOSSES = {"reg": "reg:squarederror", "rank": "rank:pairwise", "rank-binary": "rank:pairwise"}
_PARAMS = {
    "max_depth": 3,
    "gamma": 1e-4,
    "min_child_weight": 1,
    "subsample": 1.0,
    "eta": 0.3,
    "lambda": 1.0,
    "alpha": 0.0,
    "verbosity": 0,
    "disable_default_eval_metric": 1,
}
_ROUNDS, _PATIENCE = 300, 20  # of boosting; without a better fit of the fastest ones
_SMALL_TABLE, _SMALL_ROUNDS = 64, 30  # rows, of which the fastest are too few to stop by
_CHAINS, _STEPS, _IDLE = 64, 120, 25  # of annealing
_RANDOM = 0.05  # of the trials
_PLANS, _LEAST_PLAN = 45, 4  # of a small space: a plan that is a large part of it learns too late
_POOL = 64  # configurations, of which the one that is farthest from those taken is taken
_GRADES = 31
_FASTEST = 0.2  # of the trials count as fast for rank-binary


def xgboost() -> ModuleType:  # the module, which has no types
    """The xgboost module; an UnsupportedError says how to get it."""
    try:
        import xgboost as module  # optional
    except ImportError:
        raise UnsupportedError("XGBTuner needs xgboost", hint="pip install 'armillary[tune]'") from None
    return module


class XGBCostModel:
    """Trees that predict the relative speed of configurations."""

    def __init__(self, loss_type: str, num_threads: int | None, seed: int) -> None:
        self.loss_type, self.booster = loss_type, None
        self.params = {**_PARAMS, "objective": LOSSES[loss_type], "seed": seed, "nthread": num_threads or 1}

    def fit(self, features: Numbers, speeds: Numbers, plan_size: int) -> None:
        """Learn speeds, of which the greatest is 1."""
        module = xgboost()
        labels = speeds / max(float(speeds.max()), 1e-12)
        if self.loss_type == "rank-binary":
            labels = (labels >= np.quantile(labels, 1 - _FASTEST)).astype(float)
        if self.loss_type != "reg":  # grades are whole numbers
            labels = np.rint(_GRADES * labels)
        data = module.DMatrix(features, label=labels)
        if self.loss_type != "reg":
            data.set_group([len(labels)])
        if len(labels) < _SMALL_TABLE:
            self.booster = module.train(self.params, data, num_boost_round=_SMALL_ROUNDS, verbose_eval=False)
            return
        goal = _recall_of_the_fastest(speeds, min(plan_size, max(1, len(speeds) // 4)))
        stop = module.callback.EarlyStopping(rounds=_PATIENCE, metric_name="a-recall", maximize=True, save_best=True)
        self.booster = module.train(
            self.params,
            data,
            num_boost_round=_ROUNDS,
            evals=[(data, "train")],
            custom_metric=goal,
            callbacks=[stop],
            verbose_eval=False,
        )

    def predict(self, features: Numbers) -> Numbers:
        """Larger is faster."""
        assert self.booster is not None, "fit comes first"
        result: Numbers = np.asarray(self.booster.predict(xgboost().DMatrix(features)))
        return result


def _recall_of_the_fastest(speeds: Numbers, count: int) -> Callable[[Numbers, object], tuple[str, float]]:
    """The part of the `count` fastest that a prediction has among its first, averaged over how many are asked."""
    places = np.argsort(np.argsort(-speeds, kind="stable"))

    def metric(predicted: Numbers, data: object) -> tuple[str, float]:  # a DMatrix
        order = places[np.argsort(-predicted, kind="stable")[:count]]
        parts = [(order[:n] < n).mean() for n in range(1, count + 1)]
        return "a-recall", float(np.mean(parts))

    return metric


class XGBTuner(Tuner):
    """Learns from trials by boosted trees; see above. `log_interval` and `optimizer` are as old scripts give them;
    `uses_model` false leaves out what the compiler's model of costs expects."""

    def __init__(
        self,
        task: Task,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: int | None = None,
        optimizer: str = "sa",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
        *,
        seed: int = 0,
        uses_model: bool = True,
    ) -> None:
        super().__init__(task, seed=seed)
        arguments = Arguments("XGBTuner", TuningError)
        arguments.whole("plan_size", plan_size, 1)
        arguments.text("feature_type", feature_type)
        arguments.text("loss_type", loss_type)
        arguments.text("optimizer", optimizer)
        if num_threads is not None:
            arguments.whole("num_threads", num_threads, 1)
        if diversity_filter_ratio is not None:
            arguments.number("diversity_filter_ratio", diversity_filter_ratio, 1)
        if feature_type not in FEATURES:
            raise TuningError(f"XGBTuner: unknown feature_type {feature_type!r}", hint=", ".join(FEATURES))
        if loss_type not in LOSSES:
            raise TuningError(f"XGBTuner: unknown loss_type {loss_type!r}", hint=", ".join(LOSSES))
        if optimizer not in ("sa", "reg"):
            raise TuningError(f"XGBTuner: unknown optimizer {optimizer!r}", hint="sa")
        xgboost()
        largest = max(len(self.space) // _PLANS, min(_LEAST_PLAN, len(self.space) // 4), 1)
        self.plan_size = min(plan_size, largest)
        self.kind, self.threads, self.seed = feature_type, num_threads, seed
        self.diversity = diversity_filter_ratio
        self.loss_type = loss_type
        self.read = FeatureReader(task, feature_type, uses_model=uses_model)
        self.seen: list[int] = []
        self.speeds: list[float] = []
        self.past: tuple[list[Numbers], list[float]] = ([], [])  # of other tasks
        self.plan: list[int] = []
        self.columns = slice(None)  # of the features, that the trees see
        self._fitted = 0

    def prepare(self, measure_option: MeasureOption) -> None:
        """A builder that spreads work over a cluster computes the features there, too."""
        builder = measure_option.get("builder") if isinstance(measure_option, dict) else None
        self.read.spread = getattr(builder, "spread", None)

    def propose(self, count: int) -> list[int]:
        result: list[int] = []
        while len(result) < count and len(self.visited) + len(result) < len(self.space):
            if not self.plan:
                self.plan = self._planned(set(result))
            index = self.plan.pop(0)
            if index not in self.visited and index not in result:
                result.append(index)
        return result

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Keep speeds; a failure has none. The plan ends where as many are new as it had."""
        for inp, result in zip(inputs, results, strict=True):
            self.seen.append(inp.config.index)
            self.speeds.append(0.0 if result.error_no else self.task.flop / result.mean)
        if len(self.seen) - self._fitted >= self.plan_size:
            self.plan = []

    def load_history(self, data_set: Pairs, min_seed_records: int = 500) -> None:
        """Learn from records, of other tasks with as many features too, if there are `min_seed_records` of them."""
        rows, speeds = [], []
        groups: dict[Any, list[tuple[MeasureInput, MeasureResult]]] = {}
        for inp, result in data_set:
            groups.setdefault(inp.task.workload, []).append((inp, result))
        for pairs in groups.values():
            best = min((r.mean for _, r in pairs), default=np.inf)
            for inp, result in pairs:
                row = self._past_feature(inp)
                if row is not None and np.isfinite(best):
                    rows.append(row)
                    speeds.append(0.0 if result.error_no else best / result.mean)
        if len(rows) < min_seed_records:
            logger.debug("XGBTuner: %d records are too few to learn from, wanted %d", len(rows), min_seed_records)
            return
        self.past = (rows, speeds)
        self.plan = []

    def _past_feature(self, inp: MeasureInput) -> Numbers | None:
        """Features of a record, as far as they mean the same in this task."""
        mine = self.task.config_space.entity_map
        if inp.task.name != self.task.name or inp.config.entity_map.keys() != mine.keys():
            return None
        features = features_of(inp.task, inp.config, self.kind)
        return None if features is None else with_estimate(features)

    def _planned(self, taken: set[int]) -> list[int]:
        """The next plan: at random until something is known, then what the trees expect most of."""
        known = {*self.visited, *taken}
        rows, speeds = self._data()
        self._fitted = len(self.seen)
        fresh = [i for i in self.space.sample_ints(min(len(self.space), 4096), self.rng) if i not in known]
        if not fresh:
            fresh = [int(i) for i in self.space.valid_indices() if int(i) not in known]
        if len(rows) < 4 or max(speeds) <= 0:
            return self._first_plan(known, fresh)
        model = XGBCostModel(self.loss_type, self.threads, self.seed)
        self.columns = self._columns(len(rows))
        model.fit(np.stack(rows)[:, self.columns], np.array(speeds), self.plan_size)
        ranked = self._annealed(model, known, fresh)
        if self.diversity:
            ranked = _diverse(ranked, self.space.dims, self.plan_size, self.diversity)
        done = len(self.seen)
        at_random = int(_RANDOM * (done + self.plan_size)) - int(_RANDOM * done)
        best = ranked[: self.plan_size - at_random]
        return best + [i for i in fresh if i not in best][:at_random] or fresh[:1]

    def _first_plan(self, known: set[int], fresh: list[int]) -> list[int]:
        """Half of what the compiler's model of costs expects most of, where there is a model; the others far apart."""
        best = [index for index in self.read.ranking if index not in known][: self.plan_size // 2]
        pool = [index for index in fresh if index not in best]
        return best + _far_apart(self.space, best, pool, self.plan_size - len(best))

    def _columns(self, rows: int) -> slice:
        """Of few rows of one task the knobs alone: the many features of loops are noise there, and tell tasks apart."""
        knobs = len(self.space.get(int(self.space.valid_indices()[0])).get_flatten_feature()) + 1
        return slice(-knobs, None) if rows < _SMALL_TABLE and not self.past[0] else slice(None)

    def _data(self) -> tuple[list[Numbers], list[float]]:
        rows, speeds = list(self.past[0]), list(self.past[1])
        self.read.ahead(self.seen)
        most = max(self.speeds, default=0.0) or 1.0
        for index, speed in zip(self.seen, self.speeds, strict=True):
            row = self.read(index)
            if row is not None and (not rows or len(row) == len(rows[0])):
                rows.append(row)
                speeds.append(speed / most)
        return rows, speeds

    def _scores(self, model: XGBCostModel, indices: Sequence[int]) -> Numbers:
        self.read.ahead(indices)
        rows = [self.read(index) for index in indices]
        known = [row for row in rows if row is not None]
        scores = np.full(len(rows), -np.inf)
        if known:
            scores[[row is not None for row in rows]] = model.predict(np.stack(known)[:, self.columns])
        return scores

    def _annealed(self, model: XGBCostModel, known: set[int], fresh: list[int]) -> list[int]:
        """Points that were met on walks with falling temperature, the most promising first."""
        if len(self.space) <= _CHAINS * 16:  # all of them
            every = [int(i) for i in self.space.valid_indices() if int(i) not in known]
            scores = self._scores(model, every)
            return [every[i] for i in np.argsort(-scores, kind="stable")]
        points = (fresh + self.seen)[:_CHAINS]
        scores = self._scores(model, points)
        met = {i: s for i, s in zip(points, scores, strict=True) if i not in known}
        idle = 0
        for step in range(_STEPS):
            moved = [self.space.random_walk(p, self.rng) for p in points]
            after = self._scores(model, moved)
            warmth = max(1e-6, 1 - step / _STEPS) * (np.ptp(scores[np.isfinite(scores)]) + 1e-6) / 4
            chance = np.exp(np.minimum(np.nan_to_num(after - scores, nan=-1e9) / warmth, 0.0))
            accepted = self.rng.random(len(points)) < chance
            best = max(met.values(), default=-np.inf)
            met |= {i: float(s) for i, s in zip(moved, after, strict=True) if i not in known}
            points = [b if yes else a for a, b, yes in zip(points, moved, accepted, strict=True)]
            scores = np.where(accepted, after, scores)
            idle = 0 if max(met.values(), default=-np.inf) > best else idle + 1
            if idle > _IDLE:
                break
        return sorted(met, key=lambda i: -met[i])


def _far_apart(space: ConfigSpace, taken: Sequence[int], fresh: Sequence[int], count: int) -> list[int]:
    """So many of the fresh configurations, each the farthest from those before, by the logarithms of their knobs."""
    every = [*taken, *fresh[: count * _POOL]]
    logs = np.log2(1 + np.abs(np.stack([space.get(i).get_flatten_feature() for i in every]).astype(np.float64)))
    span = np.ptp(logs, axis=0)
    points = logs[:, span > 0] / span[span > 0]
    chosen = list(range(len(taken))) or [0]
    while len(chosen) < min(len(taken) + count, len(every)):
        nearest = ((points[:, None] - points[None, chosen]) ** 2).sum(axis=2).min(axis=1)
        nearest[chosen] = -1.0
        chosen.append(int(nearest.argmax()))
    return [every[place] for place in chosen[len(taken) :]]


def _diverse(ranked: list[int], dims: list[int], count: int, ratio: float) -> list[int]:
    """Of the first `ratio` times `count` those that together have most different knobs, chosen one by one."""
    left, taken, met = ranked[: int(ratio * count)], list[int](), set[tuple[int, int]]()
    while left and len(taken) < count:
        best = max(left, key=lambda i: len({*enumerate(knob2point(i, dims))} - met))
        left.remove(best)
        taken.append(best)
        met |= set(enumerate(knob2point(best, dims)))
    return taken
