"""The backends that kvassay ships: one package each."""
