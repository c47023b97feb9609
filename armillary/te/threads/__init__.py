"""Reductions that work-items of a group share: `reduction.py`.

In: a stage one of whose reduction axes is bound to a `threadIdx`. Out: its loops. Invariant: no other stage comes here.
"""
