"""Import rules of the domain ai.onnx.ml, by family: trees, linear models, support vectors, preparation of features."""
