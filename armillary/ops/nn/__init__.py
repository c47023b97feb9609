"""Neural-network layers: conv, conv_transpose, pool, dense, norm, softmax, activation, attention, resize, pad…

Window arithmetic, layouts as strings and checks are in _windows.
"""
