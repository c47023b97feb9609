"""Algorithms and schedules per target family: `registry` chooses; `cpu/` holds the CPU ones."""
