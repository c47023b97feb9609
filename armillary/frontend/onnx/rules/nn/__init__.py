"""Import rules of the neural-network operators of ONNX: windows, products, norms, activations, recurrence."""
