"""Detection: non-maximum suppression, regions of interest."""
