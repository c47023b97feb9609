"""16-bit floats as formats of memory: what several back ends do to a graph so that its arithmetic is in float32."""
