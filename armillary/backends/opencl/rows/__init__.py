"""Reductions of rows and what is computed from them, in one pass: layer normalisation, softmax, means."""
