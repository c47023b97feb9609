"""Convolutions to few channels: input channels along the lanes."""
