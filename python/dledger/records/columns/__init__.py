"""The columns of a typed topic: their types, their changes, and rows as JSON text."""
