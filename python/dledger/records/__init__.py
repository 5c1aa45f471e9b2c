"""Records and rows as Arrow, and the bodies of entries that they are stored in."""
