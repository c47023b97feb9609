"""The contract with a library that computes parts of a graph.

In: an `Offload`: rows of patterns and operators with predicates that say why not, and a code generator. Out:
`partition`, which moves what the library takes into functions of their own, and `codegen_of`, by which a build turns
each such function into a module: JSON that a runtime loads (`libarmillary_external_<kind>.so`, see
runtime/include/arm_external.h) or C source that is linked. Invariant: a function that no code generator knows is an
error of the build, never computed otherwise in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from armillary.base.functions import FUNCTIONS
from armillary.base.lazy import similar
from armillary.base.record import record
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload import BUILT_IN, load
from armillary.relay.binding import bind_params_by_name
from armillary.relay.expr import Constant, Function
from armillary.relay.lazy_registry import current_name
from armillary.relay.offload_tables import Predicate, close_table, register_pattern_table, register_support
from armillary.relay.op import OPS
from armillary.relay.pattern import Check, DFPattern
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.transform.partition.annotate_target import annotate_target
from armillary.relay.transform.partition.merge_compiler_regions import merge_compiler_regions
from armillary.relay.transform.partition.merge_composite import merge_composite
from armillary.relay.transform.partition.partition_graph import partition_graph
from armillary.transform import Pass, Sequential


@record
class JsonModule:
    """What a runtime makes the function from. `constants` in the order of the source's const nodes."""

    source: str
    constants: tuple[Constant, ...] = ()
    kind: str = ""  # of the runtime; "": the library's name
    device: str = ""  # where it runs: "opencl", or "" for the CPU


@record
class SourceModule:
    """C source, compiled for the target and linked with the kernels.

    It defines a kernel `<symbol>__p0` of one iteration, as docs/architecture.md says of kernels; `data` holds the
    inputs, the constants, the outputs.
    """

    source: str
    constants: tuple[Constant, ...] = ()
    failures: tuple[str, ...] = ()  # what it means that the kernel returns 1, 2, …


Codegen = Callable[[Function], JsonModule | SourceModule]  # the function's symbol is its attribute global_symbol


@record
class PatternRow:
    """A composite: its name without the library's, how the pattern is made, and why a match is not taken."""

    name: str
    pattern: Callable[[], DFPattern]
    check: Check | None = None


@record
class Offload:
    """The manifest of a library."""

    name: str
    codegen: Codegen
    patterns: tuple[PatternRow, ...] = ()
    operators: Mapping[str, Predicate] = field(default_factory=dict)
    prepare: tuple[Pass, ...] = ()  # what makes more of a module fit, before patterns are looked for
    merges_regions: bool = False  # neighbouring calls become one function
    disabled: tuple[str, ...] = ()  # composites and operators that are off unless asked for
    aliases: tuple[str, ...] = ()  # other names in lists of targets
    absence: Callable[[], str | None] = lambda: None  # why code that runs in this process cannot call it
    writes_rows_only: bool = False  # the code generator knows these patterns and operators, and no others


_OFFLOADS: dict[str, Offload] = {}
_CODEGENS: dict[str, Codegen] = {}


def register_codegen(name: str, codegen: Codegen) -> None:
    """Set what writes the functions of a library (`relay.ext.<name>`)."""
    _CODEGENS[name] = codegen


def register_offload(offload: Offload) -> Offload:
    """Make a library known to MergeComposite, AnnotateTarget, builds and lists of targets."""
    for name in (offload.name, *offload.aliases):
        _OFFLOADS[name] = offload
    register_codegen(offload.name, offload.codegen)
    register_pattern_table(offload.name, lambda: _rows(offload, ()))
    for operator, predicate in offload.operators.items():
        register_support(offload.name, operator, predicate)
    if offload.writes_rows_only:
        close_table(offload.name)
    return offload


def is_offload(name: str) -> bool:
    """Whether a library of that name, or alias, is known."""
    load(name)
    return name in _OFFLOADS


def offload_names() -> list[str]:
    """Names of the libraries, aliases among them, that a list of targets may have."""
    return sorted({*_OFFLOADS, *BUILT_IN})


def find_offload(name: str) -> Offload:
    """The manifest of a library, by name or alias."""
    if is_offload(name):
        return _OFFLOADS[name]
    known = offload_names()
    close = similar(name, known)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"
    raise ConfigError(f"there is no library {name!r} to offload to", hint=hint)


def codegen_of(name: str, function: Function) -> Codegen:
    """What writes the functions of a library."""
    load(name)
    script = FUNCTIONS.get(f"relay.ext.{name}")
    if script is not None:
        return script
    if name not in _CODEGENS:
        message = f"a part of the graph is meant for {name}, but nothing generates code for it"
        raise UnsupportedError(
            message, span=function.span, hint=f'register_func("relay.ext.{name}", …) before the build'
        )
    return _CODEGENS[name]


def partition(
    module: IRModule,
    offload: Offload,
    params: Mapping[str, object] | None = None,  # numpy arrays or NDArrays
    disabled: Sequence[str] | None = None,
    mod_name: str = "default",
    merges_regions: bool | None = None,
) -> IRModule:
    """Move what a library takes into functions `tvmgen_<mod_name>_<library>_main_<n>`; parameters become constants."""
    merges = offload.merges_regions if merges_regions is None else merges_regions
    if params:
        module = module.copy()
        module["main"] = bind_params_by_name(module["main"], params)
    off = offload.disabled if disabled is None else _disabled(offload, disabled)
    for step in offload.prepare:  # whatever the level of the context is
        module = step(module)
    steps = [
        infer_type.bind(),
        merge_composite.bind(pattern_table=_rows(offload, off)),
        annotate_target.bind(targets=offload.name, include_non_call_ops=False, disabled=off),
        *([merge_compiler_regions.bind()] if merges else []),
        partition_graph.bind(mod_name=mod_name),
        infer_type.bind(),
    ]
    asked = tuple(dict.fromkeys((*module.asked, offload.name)))
    result = Sequential(steps, f"partition_for_{offload.name}")(module).copy()
    result.asked = asked
    return result


def _disabled(offload: Offload, names: Sequence[str]) -> tuple[str, ...]:
    """Rows and operators that a list of names turns off: a row's name, with the library's or not, or an operator's.

    That of an operator turns off the row called after it, too: nn.conv2d the row conv2d, which takes what follows.
    """
    if isinstance(names, str):
        raise ConfigError(f"disabled_ops is the text {names!r}, wanted a list", hint=f"disabled_ops=[{names!r}]")
    rows, result = {row.name for row in offload.patterns}, list[str]()
    for name in names:
        own = name.removeprefix(f"{offload.name}.")
        row = own.removeprefix("nn.").replace("qnn.", "qnn_")
        if own not in rows and current_name(own) not in OPS:
            close = similar(own, [*rows, *offload.operators], 3, 0.6)
            hint = f"similar: {', '.join(close)}" if close else f"rows: {', '.join(sorted(rows))}; or an operator"
            raise ConfigError(f"disabled_ops: {offload.name} knows no {name!r}", hint=hint)
        result += [own, row] if row in rows else [own]
    return tuple(result)


def _rows(offload: Offload, disabled: Sequence[str]) -> list[tuple[str, DFPattern, Check | None]]:
    rows = [row for row in offload.patterns if row.name not in disabled]
    return [(f"{offload.name}.{row.name}", row.pattern(), row.check) for row in rows]
