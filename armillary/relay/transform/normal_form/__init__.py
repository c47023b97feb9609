"""The shape of programs: A-normal, basic-block and graph normal form, and what such changes need.

beta_reduce, inline, defuse_ops, dead_code_elimination, remove_unused_functions; infer_type and label_ops annotate.
"""
