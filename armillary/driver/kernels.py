"""From fused functions to object code, through the disk cache.

In: named kernels (fused Relay functions with their text) and a target. Out: `CompiledKernel`s: one object, one
descriptor row and notes (explain.py) per kernel. Invariant: an entry of the cache is found again by the text of the
function, the target, the pass configuration and the compiler's own sources, so nobody ever clears it by hand. What is
missing is lowered and compiled in worker processes (kernel_worker.py), which get the same text: loops, emitters and
LLVM take 100 MB that this process need not have. Where a worker cannot do it, this process does (kernel_code.py).
"""

from __future__ import annotations

import atexit
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from armillary.artifact import Descriptor, FunctionRow
from armillary.artifact.kernel import CompiledKernel
from armillary.backends.base import backend_of, is_built_in
from armillary.backends.placement import DEVICE, HOSTED, DeviceTargets
from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.lazy import deferred
from armillary.base.node import post_order
from armillary.budgets import COMPILE_SECONDS, FILE_NODES, KERNEL_SIZE, KERNELS, KERNELS_PER_NODE
from armillary.codegen.workers.cache import Cache, cache_key, default_cache
from armillary.codegen.workers.pool import CompileTimeoutError, Pool
from armillary.driver.program_codegen import Kernel
from armillary.errors import ExecutionError, InternalError, TargetError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function
from armillary.relay.op import Kind, Op
from armillary.relay.types import tensor_fields
from armillary.target import Target
from armillary.transform import ADD_LOWER_PASS, PassContext

with deferred():
    from armillary.driver import kernel_code

Progress = Callable[[str, int, int], None]  # stage, done, total
_SHOWN = 2000  # characters of a kernel's text that an error repeats
_PACKAGE = Path(__file__).resolve().parents[1]
_WORKERS = Pool("armillary.driver.kernel_worker")
atexit.register(_WORKERS.close)


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


def compile_kernels(
    kernels: Sequence[Kernel], target: Target, progress: Progress = no_progress, *, is_alone: bool = False
) -> dict[str, CompiledKernel]:
    """Compile every kernel, reading what the cache has and writing what it lacks; `is_alone`: without other
    processes, for one that lives no longer than this."""
    context = PassContext.current()
    # Code of the user's is no part of the key, and unknown to a worker.
    is_custom = bool(context.get(ADD_LOWER_PASS)) or not is_built_in(target)
    is_watched = any(i.needs_kernels for i in context.instruments)
    store = None if is_custom else default_cache()
    keys = dict(zip((k.name for k in kernels), kernel_keys([(k.name, k.text) for k in kernels], target), strict=True))
    stored = {k.name: store for k in kernels if store is not None and _is_ours(k.function)}
    stored_code = {k.name: None if is_watched else _read(stored.get(k.name), keys[k.name]) for k in kernels}
    missing = [k for k in kernels if stored_code[k.name] is None]
    done = {name: kernel for name, kernel in stored_code.items() if kernel is not None}
    for kernel in missing:
        size = len(kernel.function.params) + sum(1 for _ in post_order(kernel.function.body))
        KERNEL_SIZE.check(size, f"kernel {kernel.name}", kernel.function.span)
    progress("compile", len(done), len(kernels))
    make = _compile_alone if is_alone else _compile_here if is_custom or is_watched else _compile_in_workers
    for kernel, objects in make(missing, keys, target):
        done[kernel.name] = objects
        if kernel.name in stored:
            stored[kernel.name].put(keys[kernel.name], objects.to_bytes(target))
        progress("compile", len(done), len(kernels))
    if missing and store is not None:
        store.trim_at_times()
    return {k.name: done[k.name] for k in kernels}


def kernel_keys(kernels: Sequence[tuple[str, str]], target: Target) -> list[str]:
    """Everything that machine code of these kernels - names and texts - depends on, in the current pass context."""
    common = (backend_of(target).machine(target), setting("ARMILLARY_CC"), context_text(), compiler_fingerprint())
    return [cache_key("kernel", name, text, *common) for name, text in kernels]


Made = Iterator[tuple[Kernel, CompiledKernel]]


def _compile_here(kernels: Sequence[Kernel], keys: Mapping[str, str], target: Target) -> Made:
    del keys  # as in _compile_in_workers
    for kernel in kernels:
        begin = time.monotonic()
        code = kernel_code.compile_kernel(kernel, target, jobs=0)
        _warn_if_slow(kernel, time.monotonic() - begin)
        yield kernel, code  # in a worker: LLVM takes 50 MB, kept for good


def _compile_alone(kernels: Sequence[Kernel], keys: Mapping[str, str], target: Target) -> Made:
    del keys  # as in _compile_in_workers
    return ((kernel, kernel_code.compile_kernel(kernel, target, jobs=1)) for kernel in kernels)


def _compile_in_workers(kernels: Sequence[Kernel], keys: Mapping[str, str], target: Target) -> Made:
    """What a script changed is compiled here, and what a worker refuses: errors are raised where the build is."""
    yield from _compile_here([k for k in kernels if not _is_ours(k.function)], keys, target)
    ours = [k for k in kernels if _is_ours(k.function)]
    common = {"target": target.to_json(), "context": context_text()}
    requests = [{"name": k.name, "text": k.text, "key": keys[k.name], **common} for k in ours]
    took: dict[int, float] = {}
    for number, answer in _WORKERS.ask_all(requests, setting("ARMILLARY_COMPILE_JOBS"), took):
        kernel = ours[number]
        _warn_if_slow(kernel, took.get(number, 0.0))
        if isinstance(answer, InternalError):
            yield from _compile_here([kernel], keys, target)
        elif isinstance(answer, BaseException):
            raise _of_kernel(kernel, answer) if isinstance(answer, ExecutionError) else answer
        else:
            yield kernel, CompiledKernel.from_bytes(answer)


def check_kernels(module: IRModule, kernels: Collection[Kernel]) -> None:
    """Refuse more kernels than functions and loops of a model may ask for: a few bytes can describe thousands."""
    numbers = [f.get_attr(FILE_NODES) for _, f in module.items() if isinstance(f, Function)]
    nodes = [int(count) for count in numbers if count is not None]
    if nodes:
        work = sum(4 if _has_contraction(kernel) else 1 for kernel in kernels)
        KERNELS.check(work, "the model", free=KERNELS_PER_NODE * max(nodes))


def _has_contraction(kernel: Kernel) -> bool:
    calls = (n for n in post_order(kernel.function.body) if isinstance(n, Call))
    return any(isinstance(n.op, Op) and n.op.kind == Kind.CONTRACTION for n in calls)


def _warn_if_slow(kernel: Kernel, seconds: float) -> None:
    limit = COMPILE_SECONDS.limit
    if seconds > limit:
        message = f"kernel {kernel.name} ({_operators(kernel)}) took {seconds:.0f} s to compile"
        warnings.warn(f"{message}; {COMPILE_SECONDS.key} is {limit}", stacklevel=2)


def _operators(kernel: Kernel) -> str:
    names = (n.op.name for n in post_order(kernel.function.body) if isinstance(n, Call) and isinstance(n.op, Op))
    return ", ".join(dict.fromkeys(names))


def _of_kernel(kernel: Kernel, error: ExecutionError) -> ExecutionError:
    """The error of a worker that took too long or died, with what it was working on."""
    what = f"kernel {kernel.name} ({_operators(kernel)}):\n{kernel.text.strip()[:_SHOWN]}"
    more = "; opt_level=0 makes simpler code; please report this text" if isinstance(error, CompileTimeoutError) else ""
    return ExecutionError(f"{error.message}, while it compiled {what}", hint=error.hint + more)


def _is_ours(function: Function) -> bool:
    """Whether a worker and the cache know the operators of a kernel: a script may define some, or change them."""
    operators = {n.op for n in post_order(function.body) if isinstance(n, Call) and isinstance(n.op, Op)}
    rules = (op.compute_rule for op in operators)
    calls = (e for e in post_order(function.body) if isinstance(e, Call))
    if any(ty.dtype.is_custom for e in (*function.params, *calls) for ty in tensor_fields(e.checked_type)):
        return False  # rules of target.datatype are this process's
    return not any(op.is_scripted for op in operators) and all(
        rule is None or rule.__module__.partition(".")[0] == _PACKAGE.name for rule in rules
    )


def kernel_groups(kernels: Iterable[Kernel], targets: DeviceTargets) -> dict[Target, list[Kernel]]:
    """Kernels by the target that they are compiled for; the main one is always there."""
    groups: dict[Target, list[Kernel]] = {targets.main: []}
    for kernel in kernels:
        device = kernel.function.get_attr(DEVICE, 0) or kernel.function.get_attr(HOSTED, 0)
        groups.setdefault(targets.target_of(int(device)), []).append(kernel)
    return groups


def sources_of(groups: Mapping[Target, Sequence[Kernel]], form: str) -> str:
    """The text of all kernels: tir, ll, asm, c or cl. Of several targets, those that have this form."""
    texts, refused = [], list[TargetError]()
    for target, kernels in groups.items():
        try:
            texts.append(str(kernel_code.kernel_sources(kernels, target, form)))
        except TargetError as error:
            refused.append(error)
    if refused and not any(texts):
        raise refused[0]
    return "\n".join(text for text in texts if text)


def context_text() -> str:
    """The part of the pass context that code depends on; `ast.literal_eval` reads it."""
    context = PassContext.current()
    config = sorted(context.config.items(), key=str)
    return repr((context.opt_level, context.disabled_pass, context.required_pass, config))


@cache
def compiler_fingerprint() -> str:
    """A hash of the package's own Python sources."""
    digest, root = blake2b(), str(_PACKAGE)
    files = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    for path in sorted(path for path in files if path.endswith(".py")):  # pathlib takes as long as the reading
        with open(path, "rb", buffering=0) as file:
            digest.update(path[len(root) :].encode() + file.read())
    return digest.hexdigest()


def _read(store: Cache | None, key: str) -> CompiledKernel | None:
    payload = store.get(key) if store is not None else None
    return None if payload is None else CompiledKernel.from_bytes(payload)


def merge_rows(
    compiled: Mapping[Target, Mapping[str, CompiledKernel]], main: Target, offloaded: Sequence[FunctionRow] = ()
) -> Descriptor:
    """The descriptor of all kernels together, by their targets, and of what libraries compute."""
    rows = {name: kernel.row for kernels in compiled.values() for name, kernel in kernels.items()}
    needs, code = dict[str, None](), dict[str, str]()
    for target, kernels in compiled.items():
        backend = backend_of(target)
        if backend.device:
            sources = {name: (kernel.row, kernel.code.decode()) for name, kernel in kernels.items()}
            shared, code[backend.device] = backend.program(sources)
            rows |= shared
            continue
        needs.update(dict.fromkeys(backend.needs(target)))
        for kernel in kernels.values():
            needs.update(dict.fromkeys(kernel.needs))
    return Descriptor(str(main), rows | {row.name: row for row in offloaded}, tuple(needs), device_code=code)
