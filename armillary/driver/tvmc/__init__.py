"""The names by which Relay-era scripts know the command line: `python -m armillary.driver.tvmc`, `transform`."""
