"""The vocabulary that every package shares: no compiler knowledge, no imports but of the standard library and numpy.

Nodes and values: node (frozen IR nodes, walks), record (frozen values), dtype. Loading: lazy (names resolved on first
use). Files and bytes: files, digest, aligned, stored. Machine: c_compiler. Settings: config, the only reader of the
environment. Errors are one floor below, in armillary/errors.py, as scripts import them.
"""
