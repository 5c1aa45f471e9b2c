"""What all roles of a member share: its log, its group, who counts, and its effects as data."""
