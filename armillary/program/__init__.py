"""The run program: what a compiled network does when it runs, as a language.

In: a graph of compiled functions as packages hold it (artifact/__init__.py). Out: a program: values with types and
storage, and the statements that compute them (nodes.py); its text and parser (text.py), its verifier (verify.py), and
its meaning over numpy (interpret.py). Invariant: a program never changes; what was printed reads back equal.
"""

from armillary.program.from_graph import program_of as program_of
from armillary.program.interpret import interpret as interpret
from armillary.program.nodes import Program as Program
from armillary.program.text import parse_program as parse_program
from armillary.program.text import print_program as print_program
from armillary.program.verify import verify as verify
