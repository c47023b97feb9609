"""Functions: one or more kernels with their borders, configured once and run often."""
