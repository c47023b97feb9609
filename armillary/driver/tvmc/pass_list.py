"""Names of passes between commas: "FoldScaleAxis,FuseOps".

In: the text of `--disabled-pass`. Out: the names. Invariant: a name that no pass has is what argparse reports.
"""

from __future__ import annotations

import argparse

from armillary.errors import ArmillaryError
from armillary.transform import find_pass


def parse_pass_list_str(input_string: str) -> list[str]:
    """The names; an empty text is one empty name. Raises argparse.ArgumentTypeError for names of no pass."""
    names = [name.strip() for name in input_string.split(",")]
    unknown = [name for name in names if name and not _is_pass(name)]
    if unknown:
        raise argparse.ArgumentTypeError(f"got {input_string!r}: there are no passes {', '.join(unknown)}")
    return names


def _is_pass(name: str) -> bool:
    try:
        find_pass(name)
    except ArmillaryError:
        return False
    return True
