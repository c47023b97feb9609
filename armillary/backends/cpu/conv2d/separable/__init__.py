"""A depthwise convolution and the 1x1 convolution that reads it, as one kernel."""
