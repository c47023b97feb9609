"""Operators of models that generate tokens: caches that are written and read in part, weights of few bits.

In: tensors. Out: `Op` records, one file each. Invariant: a cache has a fixed capacity; what of it counts is a value.
"""
