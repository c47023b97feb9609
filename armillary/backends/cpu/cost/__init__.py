"""Cost models that several algorithms ask: model (register tiles, caches), narrow (few columns), products16 (16 bits).

Arithmetic on facts of the target; no operator and no schedule. Models of one algorithm stand beside it, as cost.py.
"""
