"""The first layer of a network by matrix tiles (AMX): few input channels."""
