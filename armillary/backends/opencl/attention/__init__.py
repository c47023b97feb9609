"""Attention in one kernel that streams keys; of few queries as scores, their softmax by rows, and a mix of values."""
