"""Graph passes of the CPU, in the order that backend.py gives.

Types: widen_small_floats, round_operands. Layouts: transpose_as_shuffle, pad_channels, merge_groups, pad_units,
alter_op_layout. Algorithms: fourier_conv2d, winograd_conv2d, frames_conv2d. Weights: trim_weights, narrow_weights.
Kernels: fuse_depthwise, fuse_pool, store_bfloat16; _collapse_rows changes a kernel just before it is lowered.
"""
