"""Language models that write answers, and say how likely a given one is."""
