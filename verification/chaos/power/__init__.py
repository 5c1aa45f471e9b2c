"""Power cuts: a disk that notes the changes that no sync covers yet, and the loss of these when the
power goes."""
