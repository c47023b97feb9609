"""Parts of a graph for other compilers and devices.

merge_composite, annotate_target, merge_compiler_regions, partition_graph (in this order), plan_devices.
"""
