"""Golden bytes: dumps, scores and outputs of small caches, written once and never regenerated."""
