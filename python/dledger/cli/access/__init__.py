"""Commands on who may connect to a group, and what each may do there."""
