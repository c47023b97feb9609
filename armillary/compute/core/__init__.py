"""Core: windows, tensor information and kernels.

Nothing in here allocates a tensor's memory or starts a thread; it tells callers how work splits.
"""
