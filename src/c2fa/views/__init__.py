"""What an input looks like: what its leaves are described by, where they lie, what an answer states."""
