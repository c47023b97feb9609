"""Functions compiled ahead of time, for programs without Python: `build.py`; the classes: `armillary_compute.hpp`."""
