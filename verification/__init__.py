"""The verification of the product: this package lies at the top of the checkout, above all other
packages, and in no wheel."""

STANDS_IN_FOR_THE_SYSTEM = True
"""Simulated disks, networks and processes raise what the system would: see `dledger.interrupts`."""
