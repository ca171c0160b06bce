"""The text experiment: product reviews as sentences of word pieces, and a fine-tuned BERT that judges them."""
