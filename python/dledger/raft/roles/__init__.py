"""The roles of a member: voter, candidate, follower, leader."""
