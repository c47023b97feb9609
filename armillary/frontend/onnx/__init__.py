"""ONNX models as Relay modules: `entry` has what users call, `walk` goes over the graph, `rules/` says each operator.

Reading: load, plain (without the onnx package), proto, split, tensor. The standard: signature, functions, table.
Inputs and shapes: inputs, variants, fold (what is known now), bounded, control and loops (what is known when run).
attributes: which attributes of a node were read. Invariant: a rule sees Python values only (`relay.op.OnnxNode`).
"""
