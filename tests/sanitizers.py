"""Flags of programs of the runtime that watch their own memory: the same for all, so that objects are compiled once."""

from __future__ import annotations

SANITIZED = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
