"""What a member does as a voter, candidate, follower or leader."""
