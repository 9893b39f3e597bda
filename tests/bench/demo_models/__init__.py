"""Train the models of the demo, which the package brings."""
