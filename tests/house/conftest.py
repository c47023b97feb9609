"""Lets the house tests import their shared helper `sources`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
