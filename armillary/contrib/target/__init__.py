"""Forms of other systems that a module of Relay can be written in: `armillary.contrib.target.onnx`."""
