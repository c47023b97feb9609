"""Passes over modules of loops that scripts put together themselves: `Apply`, `Filter`, `BindTarget`, `ThreadSync` ….

In: a module. Out: a module. Invariant: what the era's passes of host and device did after its loop passes happens here
when code is made (`split_phases.py`, `split_host_device.py`), which knows the target; `AT_BUILD` names those, and as
passes they leave a module as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.boundary import boundary
from armillary.errors import ScheduleError, UnsupportedError
from armillary.ir import IRModule
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements
from armillary.tir.transform.insert_barriers import global_buffers, insert_barriers
from armillary.tir.transform.loop_pass import with_body
from armillary.transform import Pass, PassInfo

AT_BUILD = (
    "AnnotateDeviceRegions",
    "CombineContextCall",
    "DecorateDeviceScope",
    "InferFragment",
    "LowerDeviceKernelLaunch",
    "LowerDeviceStorageAccessInfo",
    "LowerTVMBuiltin",
    "LowerThreadAllreduce",
    "LowerWarpMemory",
    "MakePackedAPI",
    "MakeUnpackedAPI",
    "MergeSharedMemoryAllocations",
    "SplitHostDevice",
)
_DEVICES = ("opencl", "cuda", "vulkan", "metal", "rocm")  # kinds whose loops have to be bound to threads


def _over_functions(name: str, rule: Callable[[S.PrimFunc], S.PrimFunc | None]) -> Pass:
    def run(module: IRModule) -> IRModule:
        return module.map_functions(lambda _, f: rule(f) if isinstance(f, S.PrimFunc) else None)

    return Pass(run, PassInfo(f"tir.{name}", f"tir-{name.lower()}"))


def _at_build(name: str) -> Callable[..., Pass]:
    def make(*_options: object, **_named: object) -> Pass:  # the old pass's own
        return Pass(lambda module: module, PassInfo(f"tir.{name}", f"tir-{name.lower()}"))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name} happens when code is made; as a pass it leaves a module as it is."
    return make


def __getattr__(name: str) -> Callable[..., Pass]:
    if name not in AT_BUILD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _at_build(name)


@boundary("tir.transform.Apply", arguments=True)
def Apply(ftransform: Callable[[S.PrimFunc], S.PrimFunc]) -> Pass:  # noqa: N802  (the name scripts use)
    """A function of functions as a pass."""
    return _over_functions("Apply", ftransform)


@boundary("tir.transform.Filter", arguments=True)
def Filter(fcond: Callable[[S.PrimFunc], bool]) -> Pass:  # noqa: N802  (the name scripts use)
    """Keep the functions for which `fcond` is true."""

    def run(module: IRModule) -> IRModule:
        return IRModule({v: f for v, f in module.functions.items() if not isinstance(f, S.PrimFunc) or fcond(f)})

    return Pass(run, PassInfo("tir.Filter", "tir-filter"))


def BindTarget(target: object) -> Pass:  # noqa: N802  (the name scripts use)
    """Note the target on every function that has none."""
    return _over_functions("BindTarget", lambda f: f if f.get_attr("target") else f.with_attr("target", target))


def AnnotateEntryFunc() -> Pass:  # noqa: N802  (the name scripts use)
    """Note on the only function of a module, or on `main`, that it is where a run begins."""

    def run(module: IRModule) -> IRModule:
        names = list(module)
        entry = names[0] if len(names) == 1 else "main"
        return module.map_functions(lambda n, f: f.with_attr("tir.is_entry_func", True) if n == entry else None)

    return Pass(run, PassInfo("tir.AnnotateEntryFunc", "tir-annotate-entry-func"))


def _bound(func: S.PrimFunc, kind: str) -> frozenset[E.Var]:
    """The variables of more than one value of loops bound to axes of a kind."""
    loops = (s for s in all_statements(func.body) if isinstance(s, S.For) and s.kind is S.LoopKind.THREAD)
    named = (loop for loop in loops if loop.thread_tag.startswith(kind))
    return frozenset(loop.var for loop in named if build.as_int(loop.extent) != 1)


@boundary("tir.transform.ThreadSync", arguments=True)
def ThreadSync(storage_scope: str) -> Pass:  # noqa: N802  (the name scripts use)
    """Put barriers between accesses of shared memory, or of global memory by one group.

    Groups of a kernel cannot wait for each other, launches do: reading what another group writes is UnsupportedError.
    """
    if storage_scope not in ("shared", "shared.dyn", "global", "warp"):
        raise UnsupportedError(f"ThreadSync of scope {storage_scope!r}", hint='"shared" or "global"')

    def sync(func: S.PrimFunc) -> S.PrimFunc:
        threads, groups = _bound(func, "threadIdx"), _bound(func, "blockIdx")
        if not threads or storage_scope == "warp":
            return func
        name = str(func.get_attr("global_symbol", "main"))
        watched = global_buffers(func.body, threads, groups, name) if storage_scope == "global" else None
        return with_body(func, insert_barriers(func.body, threads, name, watched))

    return _over_functions("ThreadSync", sync)


def VerifyMemory() -> Pass:  # noqa: N802  (the name scripts use)
    """Refuse a function for a device (by its attribute `target`) that stores outside of loops bound to threads."""

    def verify(func: S.PrimFunc) -> None:
        kind = str(getattr(getattr(func.get_attr("target"), "kind", ""), "name", ""))
        outside = _unbound(func.body) if kind in _DEVICES else None
        if outside is not None:
            message = f"{func.get_attr('global_symbol', 'main')}: {outside.buffer.name} is stored by the host of {kind}"
            raise ScheduleError(message, hint="bind the axes of its stage to blockIdx and threadIdx")

    return _over_functions("VerifyMemory", verify)


def _unbound(item: S.Stmt) -> S.BufferStore | None:
    """A store that no loop bound to threads is around."""
    stack = [item]
    while stack:
        at = stack.pop()
        if isinstance(at, S.BufferStore):
            return at
        if isinstance(at, S.For) and at.kind is S.LoopKind.THREAD:
            continue
        values = (getattr(at, name) for name in at._fields)
        for value in values:
            stack.extend(v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, S.Stmt))
    return None
