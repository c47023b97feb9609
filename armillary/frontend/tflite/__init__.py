"""TFLite's files without TFLite: `entry` makes the module, `schema` reads files, rules/ has operators."""
