"""Graph passes of the CPU, in the order that backend.py gives.

Types: round_operands. Layouts: transpose_as_shuffle, pad_channels, merge_groups, pad_units,
alter_op_layout. Algorithms: use_algorithms runs the passes that lie in their folders. Weights: trim_weights,
narrow_weights. Kernels: store_bfloat16, choose_kernels; _collapse_rows changes a kernel just before it is lowered.
"""
