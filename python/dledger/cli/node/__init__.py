"""Commands of one node: it runs, or its stopped store is looked at and mended."""
