"""Other libraries' files as samples: one module a format, and what they share. Nothing in one is ever run."""
