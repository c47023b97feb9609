"""Narrow arithmetic: qnn operators as plain integers, fake quantisation as integers, mixed precision.

qnn_legalize, qnn_canonicalize; fake_quantization_to_integer (rules of operators: ops/qnn/affine); to_mixed_precision,
change_datatype.
"""
