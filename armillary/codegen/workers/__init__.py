"""Compilation in worker processes, and what it made before.

pool (starts and feeds processes), worker (one of them), framing (how they talk), orphans (no worker outlives its
parent), cache (compiled kernels on disk).
"""
