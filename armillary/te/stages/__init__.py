"""A schedule's loops over tensors, as the steps of Relay-era lowering have them: `realize.py`.

In: a schedule. Out: statements to look at, then a function. Invariant: no compile of a network comes here.
"""
