"""Parts of a graph for other compilers and devices.

merge_composite, annotate_target, merge_compiler_regions, partition_graph (in this order), plan_devices.
"""

ON_DEVICE, COPY = "annotation.on_device", "device_copy"  # the operators that say where a value is, and that move it
