"""Pooling: blocked (channels in blocks), planes (plain NCHW), channels_last (NHWC)."""
