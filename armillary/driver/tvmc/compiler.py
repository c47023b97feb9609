"""Compiling a model to a package: `tvmc.compile`.

In: a TVMCModel, a target or a list of targets, perhaps records of tuning. Out: a TVMCPackage and, where asked for,
files of code beside it. Invariant: layouts are changed first, then precision, then libraries of the list take their
part, as `armc compile` does. Options that nothing here would read are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from armillary.autotvm.task.dispatcher import apply_history_best
from armillary.base.boundary import boundary
from armillary.base.files import write_atomic
from armillary.cli.compile import CODE_FORMS, dump_code_of
from armillary.cli.options.models import pass_config, with_attributes
from armillary.driver.build import build
from armillary.driver.tvmc.model import TVMCModel, TVMCPackage
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.errors import ConfigError
from armillary.instrument import PassTimingInstrument
from armillary.target import Target
from armillary.transform import PassContext, PassInstrument

Attributes = Mapping[str, Mapping[str, str]]  # by kind, then by name: {"opencl": {"device": "adreno"}}


@boundary("tvmc.compile")
def compile(
    tvmc_model: TVMCModel,
    target: str | Target,
    opt_level: int = 3,
    executor: object = None,
    runtime: object = None,
    tuning_records: str | Path | None = None,
    package_path: str | Path | None = None,
    cross: str | None = None,
    cross_options: str | None = None,
    output_format: str = "so",
    dump_code: str | Sequence[str] | None = None,
    dump_offloads: str = "",
    target_host: str | None = None,
    disabled_pass: Sequence[str] | str | None = None,
    pass_context_configs: Sequence[str] | Mapping[str, object] | None = None,
    additional_target_options: Attributes | None = None,
    use_vm: bool = False,
    mod_name: str = "default",
    workspace_pools: object = None,
    print_pass_times: bool = False,
    instruments: Sequence[PassInstrument] | None = None,
    **transforms: object,
) -> TVMCPackage:
    """Compile for a target; `transforms` are those of `apply_graph_transforms` (desired_layout, mixed_precision…).

    `executor` and `runtime` are the graph executor and this runtime, whatever is given. `dump_offloads` is "-" or a
    file for what libraries compute. `use_vm` makes the same package: it runs networks of open sizes, too. Raises
    ConfigError for another output format, and for pools of memory, which C packages have.
    """
    del executor, runtime, use_vm
    _check(output_format, workspace_pools)
    path = Path(package_path or tvmc_model.default_package_path())
    where = with_attributes(str(target), additional_target_options) if additional_target_options else target
    timing = PassTimingInstrument()
    watching = [*(instruments or ()), *([timing] if print_pass_times else [])]
    context = PassContext(opt_level, (), _words(disabled_pass), watching, _config(pass_context_configs))
    with context, apply_history_best(str(tuning_records)) if tuning_records else nullcontext():
        module = apply_graph_transforms(tvmc_model.mod, transforms)
        library = build(module, where, target_host, params=tvmc_model.params, mod_name=mod_name)
    if dump_offloads:
        _report(dump_offloads, str(library.offload_report))
    dump_code_of(library, path, _forms(dump_code))
    library.export_library(str(path), cc=cross or None, options=(cross_options or "").split())
    if print_pass_times:
        print(timing.render())
    return TVMCPackage(path)


compile_model = compile


def save_dumps(module_name: str, dumps: Mapping[str, str], dump_root: str | Path = ".") -> None:
    """Write texts by their form into a folder: `<module_name>.ll`."""
    for form, text in dumps.items():
        write_atomic(Path(dump_root) / f"{module_name}.{form}", text.encode())


def _check(output_format: str, pools: object) -> None:
    if output_format not in ("so", "tar"):
        raise ConfigError(f"output_format {output_format!r}: packages hold a shared library", hint='"so"')
    if pools is not None:
        hint = 'relay.build(module, "c", executor=Executor("aot"), workspace_memory_pools=pools) writes one'
        raise ConfigError("workspace_pools: pools of memory are of C packages", hint=hint)


def _words(text_or_words: Sequence[str] | str | None) -> list[str]:
    words = text_or_words.split(",") if isinstance(text_or_words, str) else list(text_or_words or ())
    return [word.strip() for word in words if word.strip()]


def _forms(words: Sequence[str] | str | None) -> list[str]:
    forms = _words(words)
    unknown = sorted(set(forms) - set(CODE_FORMS))
    if unknown:
        raise ConfigError(f"dump_code: unknown form {unknown[0]!r}", hint=f"it may be any of {', '.join(CODE_FORMS)}")
    return forms


def _config(options: Sequence[str] | Mapping[str, object] | None) -> dict[str, object]:
    return dict(options) if isinstance(options, Mapping) else pass_config(options or ())


def _report(place: str, text: str) -> None:
    if place == "-":
        print(text)
    else:
        write_atomic(place, text.encode())
