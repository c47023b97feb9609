"""Operators and patterns for external libraries: a module for each library, named as in Relay-era scripts."""
