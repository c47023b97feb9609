"""What only programs that scripts write have: blocks, and values that a function returns.

In: a function. Out: one that the passes of `tir/lower.py` know. Invariant: functions without either stay as they are.
"""
