"""The CPU back end: LLVM or C for one thread's window of each loop. `backend` is its record."""
