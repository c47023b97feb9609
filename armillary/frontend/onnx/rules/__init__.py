"""Import rules of ONNX operators, by family; each is registered by `@from_onnx` and found by being here.

Where a rule is one line it may stand with the operator (`armillary/ops`).
"""
