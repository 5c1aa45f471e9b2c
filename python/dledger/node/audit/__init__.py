"""The audit log: who did what to the group, from which address, and what was refused to whom."""

from dledger.node.audit.audit_log import AuditLog

__all__ = ["AuditLog"]
