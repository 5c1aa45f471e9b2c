"""The history of what clients saw, and the checkers that judge it. The package is pure: no clock,
network, disk or dice."""

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
