"""The loop language: scalar expressions, statements, functions, text, interpreter, passes.

Core modules: expr (nodes), build (constructors; installs the operators of Expr), stmt (statements), intrinsics
(named functions), simplify, printer, parser, verifier, interpreter, lower (the pass pipeline).
"""
