"""Products with weights of 2, 4 or 8 bits in groups: activations in digits of base 256, sums of bytes (operator.py)."""
