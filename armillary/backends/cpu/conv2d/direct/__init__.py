"""Direct convolution in blocked layouts by a register tile; operators for floats, bytes and bfloat16."""
