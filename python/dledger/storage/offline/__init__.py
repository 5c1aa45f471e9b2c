"""The files of a stopped store: looked at, checked, shown, and given another term."""
