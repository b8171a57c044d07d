"""What both ends of the wire agree on: pure functions of the server and of the client, numpy at most."""
