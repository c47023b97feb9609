"""Façades under the names of Relay-era scripts."""
