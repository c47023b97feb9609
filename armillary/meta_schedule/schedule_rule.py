"""Names of rules, mutators, steps after them, callbacks and schedulers of tasks; all are there, none changes anything.

In: options. Out: what `PostOrderApply(sch_rules=…)` and the like take. Invariant: the space of schedules is described
by `space_generator.py` alone, mutations and shares of trials are the tuners'; `create` gives the rules of a name.
"""

from __future__ import annotations


class ScheduleRule:
    """A rule by its name, with its options."""

    def __init__(self, *args: object, **options: object) -> None:
        self.args, self.options = args, options

    @classmethod
    def create(cls, kind: str = "default", *args: object, **options: object) -> list[ScheduleRule]:
        """The rules of a name ("llvm", "cuda", "vnni", …)."""
        return [cls(kind, *args, **options)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.args))})"


class Mutator(ScheduleRule):
    """What changes a trace: the tuners do."""


class Postproc(ScheduleRule):
    """What follows on a space: nothing does."""


class MeasureCallback(ScheduleRule):
    """What hears of every trial: the database does."""


class TaskScheduler(ScheduleRule):
    """Who shares trials among tasks: by operations and weight."""


_RULES = (
    "AddRFactor ApplyCustomRule AutoBind AutoInline CrossThreadReduction InlineConstantScalars MultiLevelTiling "
    "MultiLevelTilingTensorCore MultiLevelTilingWideVector MultiLevelTilingWithIntrin ParallelizeVectorizeUnroll "
    "RandomComputeLocation ReuseType"
)
_AFTER = (
    "DisallowAsyncStridedMemCopy DisallowDynamicLoop RewriteCooperativeFetch RewriteLayout "
    "RewriteParallelVectorizeUnroll RewriteReductionBlock RewriteTensorize RewriteUnboundBlock VerifyGPUCode "
    "VerifyVTCMLimit"
)
_CHANGES = "MutateComputeLocation MutateParallel MutateThreadBinding MutateTileSize MutateUnroll"
_KINDS: dict[str, type[ScheduleRule]] = {
    **dict.fromkeys(_RULES.split(), ScheduleRule),
    **dict.fromkeys(_AFTER.split(), Postproc),
    **dict.fromkeys(_CHANGES.split(), Mutator),
    **dict.fromkeys(("AddToDatabase", "RemoveBuildArtifact", "UpdateCostModel"), MeasureCallback),
    **dict.fromkeys(("GradientBased", "RoundRobin"), TaskScheduler),
}


def __getattr__(name: str) -> type[ScheduleRule]:
    if name not in _KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return type(name, (_KINDS[name],), {"__doc__": _KINDS[name].__doc__})
