"""Convolution on the CPU, a folder for each algorithm: its operator, cost model and schedule.

direct (blocked layouts, register tile), winograd, fourier, depthwise, transpose, amx (matrix tiles), amx_first_layer
(few input channels), narrow_output (few output channels), planes (plain NCHW); pooled and separable compute two
operators.
"""
