"""Split functions to LLVM IR text, and the text to machine code.

emit (functions and statements), state and builder (what is written into), expr, calls, types, small_floats (values),
index, memory, lanes, registers, register_transpose, nontemporal (buffers), lane_loads, dots, amx
(instructions for products), float_functions, float_lanes, math, trig, subnormals (float32 functions of our own),
target and machine (LLVM itself). Invariant: nothing but `machine` loads LLVM.
"""
