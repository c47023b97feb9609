"""Options of sessions and runs, by ONNX Runtime's names.

In: what scripts set. Out: values that a session reads. Invariant: an option that ONNX Runtime does not have is refused
with the nearest name; one that it has and that means nothing here is taken with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from armillary.base.lazy import similar
from armillary.errors import ConfigError

_OF_CONSTRUCTOR = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
_NO_EFFECT = {  # and the defaults of ONNX Runtime: setting those says nothing
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "execution_mode": None,
    "execution_order": None,
    "graph_optimization_level": None,
    "inter_op_num_threads": 0,
    "log_severity_level": 2,
    "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}
_QUIET = (
    "execution_mode",
    "execution_order",
    "graph_optimization_level",
    "log_severity_level",
    "log_verbosity_level",
    "logid",
    "use_deterministic_compute",
)  # what scripts set out of habit and what loses nothing
_OF_RUNS = {
    "log_severity_level": 2,
    "log_verbosity_level": 0,
    "logid": "",
    "only_execute_path_to_fetches": False,
    "terminate": False,
    "training_mode": False,
}


def no_effect(what: str, names: Iterable[str]) -> None:
    """Warn of options that mean nothing here, refuse those that are unknown."""
    for name in names:
        if name not in _OF_CONSTRUCTOR:
            raise ConfigError(f"{what} has no option {name!r}", hint=_hint(name, _OF_CONSTRUCTOR))
        warnings.warn(f"{what}: {name} has no effect", stacklevel=6)


def _hint(name: str, known: Iterable[str]) -> str:
    near = similar(name, list(known), 1)
    return f"did you mean {near[0]}?" if near else f"options: {', '.join(sorted(known))}"


class SessionOptions:
    """Options of a session: threads of the process's pool, profiling, sizes of symbolic dimensions."""

    intra_op_num_threads: int
    enable_profiling: bool
    profile_file_prefix: str

    def __init__(self) -> None:
        self.intra_op_num_threads = 0  # 0 leaves the pool as it is
        self.enable_profiling = False
        self.profile_file_prefix = "armillary_profile"
        self.free_dimensions: dict[str, int] = {}
        self.config_entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if name in _NO_EFFECT:
            if name not in _QUIET and value != _NO_EFFECT[name]:
                warnings.warn(f"SessionOptions.{name} has no effect", stacklevel=2)
        elif name not in _SESSION:
            raise ConfigError(f"SessionOptions has no option {name!r}", hint=_hint(name, (*_SESSION, *_NO_EFFECT)))
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> object:
        if name in _NO_EFFECT:
            return _NO_EFFECT[name]
        raise AttributeError(name)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Say which size a symbolic dimension of the model has, so that it is compiled at once."""
        self.free_dimensions[name] = value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Note an entry, which has no effect."""
        warnings.warn(f"SessionOptions: the entry {key} has no effect", stacklevel=2)
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was noted."""
        if key not in self.config_entries:
            raise ConfigError(f"SessionOptions has no entry {key!r}")
        return self.config_entries[key]


_SESSION = ("intra_op_num_threads", "enable_profiling", "profile_file_prefix", "free_dimensions", "config_entries")


class RunOptions:
    """Options of a run; none has an effect."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _OF_RUNS:
            raise ConfigError(f"RunOptions has no option {name!r}", hint=_hint(name, _OF_RUNS))
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> object:
        if name in _OF_RUNS:
            return _OF_RUNS[name]
        raise AttributeError(name)


__all__ = ["RunOptions", "SessionOptions", "no_effect"]
