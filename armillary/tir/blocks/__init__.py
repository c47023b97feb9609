"""Forms of a program before plain loops over memory: nodes of blocks (`block.py`) and which elements they touch
(`regions.py`); statements over tensors that have no memory yet (`producers.py`).

In: see the modules. Out: see the modules. Invariant: nothing of a compile of a network imports this folder.
"""
