"""Graph passes of the OpenCL back end: Winograd's algorithm."""
