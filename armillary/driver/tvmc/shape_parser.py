"""Shapes by input name from a text: "data:[1,3,224,224] mask:[-1,224]".

In: the text of `--input-shapes`. Out: lists of dimensions by name. Invariant: -1 is a dimension that is not known; a
text of another form is what argparse reports.
"""

from __future__ import annotations

import argparse

from armillary.cli.options.models import dimensions
from armillary.errors import ConfigError
from armillary.relay.types import AnyDim


def parse_shape_string(inputs_string: str) -> dict[str, list[int | AnyDim]]:
    """Shapes by name. Raises argparse.ArgumentTypeError for what cannot be read."""
    try:
        shapes = dimensions(inputs_string)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return {name: [AnyDim() if size < 0 else size for size in shape] for name, shape in shapes.items()}
