"""What dledger is tested with, shipped so that users can test against it too: it never runs in a
node or a client."""
