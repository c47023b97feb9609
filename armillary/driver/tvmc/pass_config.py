"""Options of a PassContext from "NAME=VALUE" texts.

In: the texts of `--pass-config`. Out: a dictionary for `PassContext(config=…)`. Invariant: a name that no option has,
and a value of another type, are refused here and not later.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.boundary import boundary
from armillary.cli.options.models import pass_config
from armillary.transform import PassContext

_JOINED = "tir.add_lower_pass"


@boundary("parse_configs")
def parse_configs(input_configs: Sequence[str] | None) -> dict[str, object]:
    """The options; passes of several `tir.add_lower_pass` follow each other.

    Raises ConfigError for a text of another form, an unknown name and a value of the wrong type.
    """
    config: dict[str, object] = {}
    for text in input_configs or ():
        for name, value in pass_config([text]).items():
            earlier = config.get(name)
            config[name] = [*earlier, *value] if isinstance(earlier, list) and isinstance(value, list) else value
    PassContext(config={name: value for name, value in config.items() if name != _JOINED})
    return config
