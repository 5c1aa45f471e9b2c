"""What a store makes of the files that it finds at its start."""
