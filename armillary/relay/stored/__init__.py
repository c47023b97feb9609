"""Graphs as other programs keep them: `json_form` (save_json, load_json), `metadata` (constants beside a text)."""
