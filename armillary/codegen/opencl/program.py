"""Sources of functions joined to one OpenCL program.

In: texts of `source.emit_source`: blocks with an empty line between. Out: one text. Invariant: a helper that many
kernels use is there once, before all that use it. Imports nothing: who joins kernels need not emit them.
"""

from __future__ import annotations

from collections.abc import Iterable


def program(sources: Iterable[str]) -> str:
    """The blocks of all sources, repeated ones once."""
    blocks: dict[str, None] = {}
    for source in sources:
        blocks.update(dict.fromkeys(source.strip("\n").split("\n\n")))
    return "\n\n".join(blocks) + "\n"
