"""Runtime: tensors with memory, schedulers, image files. Users may put their own in the place of each."""
