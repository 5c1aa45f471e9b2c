"""What only verifies the product: it lies in the checkout, above everything, and in no wheel."""

STANDS_IN_FOR_THE_SYSTEM = True
"""Simulated disks, networks and processes raise what the system would: see `dledger.interrupts`."""
