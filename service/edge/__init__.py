"""What stands around every request: its connection, its size, its log, and errors as answers."""
