"""Object files: which features their code uses, loading them into this process, appending to a linked library.

jit (loads objects: by elf_loader, or by LLVM through jit_llvm), used_features, elf_append. No emitter is imported here.
"""
