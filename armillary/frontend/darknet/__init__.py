"""Darknet networks without Darknet: `entry` makes the module, `cfg` and `weights` read files, `layers` rules."""
