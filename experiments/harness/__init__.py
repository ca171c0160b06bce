"""What both experiments share: a network that answers many workers at once, and a grid that many processes evaluate."""
