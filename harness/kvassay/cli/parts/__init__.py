"""What the commands share: options, choices, tables, progress, terminals."""
