"""Timing a network beside other engines: in turns (`race.py`), each in a process that loads it (`engines.py`)."""
