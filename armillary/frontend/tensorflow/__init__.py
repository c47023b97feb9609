"""TensorFlow's frozen graphs without TensorFlow: `entry` makes the module, `graph` reads files, rules/ operators."""
