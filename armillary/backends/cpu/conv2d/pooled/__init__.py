"""A convolution and the pooling that reads it, as one kernel."""
