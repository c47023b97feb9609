"""Linking for Android with the NDK's clang.

In: object files; the compiler command from ARMILLARY_CC or `cc=`. Out: a shared library for a phone. Invariant: without
a compiler that is named nothing is linked: this machine's would make a library that no phone loads. Linking itself:
cc.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from armillary.base.config import setting
from armillary.contrib import cc as host
from armillary.errors import TargetError


def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link a shared library with the NDK's compiler."""
    compiler = cc or setting("ARMILLARY_CC")
    if not compiler:
        hint = "set ARMILLARY_CC, for example to …/linux-x86_64/bin/aarch64-linux-android28-clang of the NDK"
        raise TargetError("the Android compiler is not known", hint=hint)
    host.create_shared(output, objects, [*(options or ()), "-lm"], cc=compiler)


create_shared.output_format = "so"  # type: ignore[attr-defined]  # read by export_library
