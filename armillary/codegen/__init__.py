"""Code generators: from split functions to LLVM IR, C source, objects and loaded code.

Core modules: build (functions to a compiled module), llvm and c (emitters), llvm_target (LLVM's back end), jit, pool
and worker (parallel compilation), cache, toolchain (compilers and linkers), base (what emitters share). Invariant:
importing this package does not load LLVM. The kernel ABI: `docs/architecture.md`.
"""
