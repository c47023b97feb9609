"""Rules of TensorFlow's operators, by family."""
