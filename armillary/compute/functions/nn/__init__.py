"""Neural-network functions: convolutions, products, pooling, normalisation, shapes, quantised forms."""
