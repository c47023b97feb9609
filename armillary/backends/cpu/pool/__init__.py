"""Pooling: blocked (channels in blocks), planes (plain NCHW)."""
