"""Vision functions of the CPU, by what they do; the expressions of a pixel are in `functions/formulas/`."""
