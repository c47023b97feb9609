"""Layouts of a graph on any target: convert_layout, channels_first; the engine and rules that back ends use."""
