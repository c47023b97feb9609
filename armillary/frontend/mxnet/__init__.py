"""MXNet networks without MXNet: `entry` makes the module, `symbol` and `params` read files, rules/ has operators."""
