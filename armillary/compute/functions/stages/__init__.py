"""Convolutions and products as the library's own kernels: `stage.py`, `products.py`, `images.py`, `winograd.py`."""
