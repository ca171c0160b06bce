"""What both experiments share: a network that answers many workers at once, and a grid that is run in shards."""
