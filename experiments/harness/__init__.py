"""What both experiments share: a network that masks its inputs, and a grid that many processes evaluate around it."""
