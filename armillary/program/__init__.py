"""The run program: what a compiled network does when it runs, as a language.

In: what the compiler emits (driver/program_codegen.py), or the graph of a package (from_graph.py). Out: a program:
values with types and storage, and the statements that compute them (nodes.py). Its text and parser: text.py. Its
verifier: verify.py. Its meaning over numpy: interpret.py. Its passes: what is computed before runs (prepare.py), and
places (placement.py). What a package holds of it: to_graph.py. Invariant: a program never changes; what was printed
reads back equal.
"""
