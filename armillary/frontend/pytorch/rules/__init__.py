"""What each ATen operator becomes in Relay, by family; registered with `aten` (../table.py).

Invariant: a rule is called with the operator's arguments in the order of its schema, defaults filled in; tensors are
expressions, everything else is a Python value. No file here imports torch.
"""
