"""Import rules of ONNX operators, by family; each is registered by `@from_onnx` and found by being here.

In: an `OnnxNode` (frontend/onnx/node.py). Out: expressions of the operators in `armillary/ops`, which know no model
format. Invariant: a rule that few models need names its operators (`by_name("one_hot")`), so that a model imports the
files of the operators it has. Files whose name starts with an underscore are helpers.
"""
