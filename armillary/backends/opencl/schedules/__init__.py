"""Schedules of OpenCL kernels: `default` of any function; the others of one operator each."""
