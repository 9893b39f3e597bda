"""Other engines that score labels, each in an environment of its own, on the same weights and texts as the scorer."""
