"""Arithmetic of integer expressions: what scripts that transform loops ask of their indices.

In: TIR expressions, what is known of variables. Out: simpler expressions, proofs, bounds, sets, solutions. Invariant:
nothing is claimed that does not follow. `analyzer` (proofs and bounds), `modular` (remainders), `int_set` (sets with
symbolic ends), `pattern` (linear forms), `deduce` (bounds of a variable by a condition), `int_solver` (systems).
"""

from armillary.arith.analyzer import Analyzer, ConstIntBound, Extension, ProofStrength
from armillary.arith.deduce import deduce_bound
from armillary.arith.int_set import IntervalSet, IntSet, estimate_region_upper_bound
from armillary.arith.int_solver import (
    IntConstraints,
    IntConstraintsTransform,
    solve_linear_equations,
)
from armillary.arith.modular import ModularSet
from armillary.arith.pattern import detect_clip_bound, detect_common_subexpr, detect_linear_equation

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "IntConstraints",
    "IntConstraintsTransform",
    "IntSet",
    "IntervalSet",
    "ModularSet",
    "ProofStrength",
    "deduce_bound",
    "detect_clip_bound",
    "detect_common_subexpr",
    "detect_linear_equation",
    "estimate_region_upper_bound",
    "solve_linear_equations",
]
