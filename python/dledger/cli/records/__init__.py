"""Commands that write records and read them."""
