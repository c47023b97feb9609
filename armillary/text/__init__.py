"""Text tools shared by all languages: `cursor` (tokens with positions, for parsers) and `writer` (indented output)."""
