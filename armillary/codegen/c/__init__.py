"""Split functions to C11 source: `source` writes functions and statements, `expr` expressions."""
