"""The messages of nodes and clients: values without behaviour."""
