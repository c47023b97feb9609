"""The `armc` command: one file per sub-command, found by being in this folder.

In: `armillary/cli/<name>.py` with `add_arguments(parser)` and `run(args) -> int`; its docstring's first line is the
summary in `armc --help`, the rest the description. Out: `armc <name>` (underscores become dashes). Files that start
with an underscore are shared helpers. Invariant: only the chosen sub-command is imported. Entry point: __main__.py.
"""
