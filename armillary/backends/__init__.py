"""Everything that knows a family of machines, one folder for each; `base` says what such a folder gives.

In: a target. Out: its `Backend`. A new family is a folder here with a `backend.py`; nothing else is edited.
"""
