"""Attention: prefill (a block of query rows at a time), decode (few query rows, keys and values read once)."""
