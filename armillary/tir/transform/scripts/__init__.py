"""What only programs that scripts write have: blocks, values that a function returns, number types of their own.

In: a function. Out: one that the passes of `tir/lower.py` know. Invariant: functions without these stay as they are.
"""
