"""From records to verdicts: rules, gate, comparisons, certificates."""
