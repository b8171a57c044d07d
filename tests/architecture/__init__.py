"""The rules of the house, executable: layers, doors, and what an import loads."""
