"""What the service answers, a module a subject; every route states its scope."""
