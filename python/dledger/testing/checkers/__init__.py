"""What clients saw, written down, and the checkers that judge it. Pure: no clock, network, disk or
dice."""

from dledger.testing.checkers.history import (
    OpenOperation,
    Operation,
    OperationKind,
    OperationOutcome,
    Recorder,
    load,
    save,
)
from dledger.testing.checkers.values import decode_value, encode_value, value_id
from dledger.testing.checkers.verdict import Verdict, check_history

__all__ = [
    "OpenOperation",
    "Operation",
    "OperationKind",
    "OperationOutcome",
    "Recorder",
    "Verdict",
    "check_history",
    "decode_value",
    "encode_value",
    "load",
    "save",
    "value_id",
]
