"""Operators of classical machine learning: ensembles of decision trees, probabilities of pairs of classes.

In: tables of features. Out: scores. Invariant: what a model has learnt is inputs (constants), not attributes. ONNX's
domain ai.onnx.ml is read by frontend/onnx/rules/ml.
"""
