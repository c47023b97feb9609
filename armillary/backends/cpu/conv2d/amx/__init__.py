"""Convolution by matrix tiles (AMX): cost model and schedule."""
