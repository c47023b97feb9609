"""What frontends settle while they import: `fold` constants and small values, `size_values` arithmetic over named
sizes, `data_sizes` sizes that only the data says.
"""
