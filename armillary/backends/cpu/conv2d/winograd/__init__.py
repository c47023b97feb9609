"""Winograd's algorithm for 3x3 convolutions: operator, cost model, schedules."""
