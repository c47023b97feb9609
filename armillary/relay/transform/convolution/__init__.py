"""Convolutions written as other convolutions: two axes instead of one or three, fewer taps, no margins.

Layers that are convolutions in disguise: dense_as_conv2d, transpose_as_conv2d. Factors that go into weights which are
inputs: _scale_flow.
"""
