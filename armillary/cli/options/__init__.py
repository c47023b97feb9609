"""Options that several sub-commands share, and what they mean."""
