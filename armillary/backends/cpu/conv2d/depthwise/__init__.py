"""Depthwise convolution in blocked layouts: cost model, schedules for floats and for bytes."""
