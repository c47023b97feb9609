"""The whole path, once, from a Relay module to a library that runs and can be exported.

In: a module or a schedule, a target, parameters. Out: a library. Invariant: who compiles comes through here; the order
of a build is in build.py alone. Where to look next: build (relay.build, the passes and code generation in order),
program_codegen (main function -> run program, whose places armillary/program plans), lower_fused (fused function -> TE
-> TIR phases), library (the result), te_build (`armillary.lower`, `armillary.build` on schedules; `build_module` has
them under old names).
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__, {"build_module": "armillary.driver.build_module", "lower": "armillary.driver.te_build:lower"}
)
