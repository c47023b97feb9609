"""Builders by the names of scripts: `LocalBuilder` is AutoTVM's.

In: options. Out: what `tune_tir(builder=…)` takes. Invariant: builders compile libraries in processes of their own.
"""

from __future__ import annotations

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure import local_builder


class LocalBuilder(local_builder.LocalBuilder):
    """Compiles on this machine, `max_workers` at once; functions that build, export or begin are not called."""

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: object = None,
        f_export: object = None,
        initializer: object = None,
    ) -> None:
        if f_build is not None or f_export is not None:
            raise TuningError("LocalBuilder: trials are built as build() does", hint="leave f_build and f_export out")
        del initializer
        super().__init__(timeout_sec, max_workers)


class Builder:
    """Makes builders by their names."""

    @staticmethod
    def create(kind: str = "local", **options: object) -> LocalBuilder:
        """The builder of a name."""
        if kind != "local":
            raise TuningError(f"there is no builder {kind!r:.60}", hint='there is "local"')
        return LocalBuilder(**options)  # type: ignore[arg-type]  # as scripts pass them
