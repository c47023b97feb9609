"""Gradients of tensor expressions: `gradient.py`; derivatives of scalars: `derivative.py`; indices: `solve.py`.

In: tensors. Out: tensors, computed as any other. Invariant: no compile of a network imports this folder.
"""
