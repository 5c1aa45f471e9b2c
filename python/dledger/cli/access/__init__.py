"""Commands on who may use a group, what each may do there, and how much."""
