"""Lets the tests of exported networks import what the end-to-end tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
