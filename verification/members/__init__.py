"""Consumers as processes of their own, and nodes, killed with SIGKILL: is a record unread, handed
to two members at a time, or handed out again behind the last commit?"""
