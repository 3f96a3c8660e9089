"""What a backend is held to, and what stands on top of one: signatures, prefixes, own formats."""
