"""The state that all roles of a member share: its log, its group, its membership, and its effects
as data."""
