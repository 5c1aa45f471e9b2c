"""What each principal may do at a node: the operation of each request, and the check."""
