"""Keras models from .h5 files: `entry` reads a model, `layers` has a rule for each kind of layer, `hdf5` the file."""
