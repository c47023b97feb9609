"""Reductions: reduce (contiguous axis), arg_across, and rows, rows_across, rows_short for softmax and its like."""
