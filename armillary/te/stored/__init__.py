"""Tensors and schedules as text: `json_form.py`.

In: what `te` makes. Out: JSON, and back. Invariant: no compile imports this folder.
"""
