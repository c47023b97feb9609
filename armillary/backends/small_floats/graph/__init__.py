"""Graph passes: widen_small_floats. _narrow_kernel stores what lies between kernels, for passes of the back ends."""
