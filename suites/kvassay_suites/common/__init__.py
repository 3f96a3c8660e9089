"""What suites share: specs, inputs, grids, child processes, what backends offer."""
