"""Products of matrices, and what is one: register tiles, both sides staged in shared memory, two stages."""
