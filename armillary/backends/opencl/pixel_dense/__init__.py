"""Dense layers of many rows whose weights are pixels of a texture."""
