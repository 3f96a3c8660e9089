"""What pages and dumps are, byte by byte, what they are checked for and what they cost."""
