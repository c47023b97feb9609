"""Blocks of TensorIR: nodes (`block.py`) and which elements they touch (`regions.py`).

In: see the modules. Out: see the modules. Invariant: nothing of a compile of a network imports this folder.
"""
