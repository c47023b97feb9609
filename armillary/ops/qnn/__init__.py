"""Operators on affine integers: quantize, arithmetic, functions (by table), products, pooling.

Affine integers as values, and what operators do to them: affine. Products of bytes as a target multiplies them:
_byte_products, _byte_convolutions.
"""
