"""Operators on affine integers: quantize, arithmetic, functions (by table), products, pooling.

Products of bytes as a target multiplies them: _byte_products, _byte_convolutions.
"""
