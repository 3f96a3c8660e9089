"""Runs tasks: worker processes, what is kept for later, clusters, what machine this is."""
