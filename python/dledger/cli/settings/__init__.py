"""What a user of the command keeps: contexts, defaults of options, completion of a shell."""
