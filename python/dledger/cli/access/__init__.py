"""Commands on who may use a group."""
