"""Networks on devices: their kernels measured (`device_profile.py`), and what the device can do (`device_roof.py`)."""
