"""Which calls become one kernel: fuse_ops groups them, kernel_per_call makes a kernel of what is left."""
