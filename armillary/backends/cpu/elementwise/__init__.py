"""Loops over elements: default (the schedule of any fused function), register_transpose, and operators like those."""
