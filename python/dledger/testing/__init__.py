"""What users test with, and the product's own tests too: it never runs in a node or a client."""
