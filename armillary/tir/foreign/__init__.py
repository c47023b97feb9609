"""What loop programs hand to functions that are not compiled here: addresses of buffers.

In: programs that name a buffer's memory. Out: the same over elements of buffers, which passes understand. Invariant: no
compile without such calls imports more than this file. Next: `addresses.py`.
"""
