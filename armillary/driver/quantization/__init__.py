"""Quantising a float network: where integers go (annotate), at which scales (calibrate), and in integers (realize)."""
