"""Other libraries' file formats, in and out. What comes in is read, never run: nothing is ever unpickled."""
