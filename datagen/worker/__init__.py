"""The worker of a run: one engine replica that turns units into parts, checked where they are made."""
