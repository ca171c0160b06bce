"""What a model is asked about an input, and what it answered: masked inputs, rows, batches, the ledger."""
