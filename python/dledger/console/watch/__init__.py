"""What the console asks a group, and how often."""
