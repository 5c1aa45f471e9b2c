"""The ``dledger`` command: a module for each command or few, by what they are about."""
