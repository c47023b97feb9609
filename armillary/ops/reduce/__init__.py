"""Reductions, positions of extremes, sorting, and results as long as their values say."""
