"""Dot products of words in LLVM IR: of four bytes, of two bfloat16, and what makes their operands."""
