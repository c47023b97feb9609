"""What MXNet's operators are in Relay, by family; frontend/mxnet/node.py has the table."""
