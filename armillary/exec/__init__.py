"""Programs under the names of Relay-era command lines."""
