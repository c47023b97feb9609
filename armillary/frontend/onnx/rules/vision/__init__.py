"""Import rules of the image and detection operators of ONNX."""
