"""The clients: they find the leader, retry what is safe to retry, and say the truth about what is not."""

from dledger.client.client import Client
from dledger.client.results import Appended, Committed, GroupOffsets, Range

__all__ = ["Appended", "Client", "Committed", "GroupOffsets", "Range"]
