"""Tables on their way into a log: their columns as a topic has them, and which rows go where."""
