"""The options of a read or write: parsed, and checked by themselves and together. Pure."""
