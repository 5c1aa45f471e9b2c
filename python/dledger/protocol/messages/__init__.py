"""What nodes and clients say to one another: values without behaviour."""
