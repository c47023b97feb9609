"""Rules of TFLite's operators: in real numbers by family, in affine integers in the files that begin with `integer`."""
