"""Code generators: from split functions to LLVM IR, C source, objects and loaded code.

build (functions to a compiled module), toolchain (compilers and linkers), base (what the emitters share). Emitters:
`llvm/` and `c/`. `object/` reads, loads and appends to object files; `workers/` compiles in parallel processes, with a
cache on disk. Invariant: importing this package does not load LLVM. The kernel ABI: `docs/architecture.md`.
"""
