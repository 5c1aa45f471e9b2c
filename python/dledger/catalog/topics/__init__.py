"""Topics, their schemas, and which offsets lie where."""
