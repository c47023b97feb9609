"""What operators know of layouts: how they follow those of their inputs, and how they are written in another one."""
