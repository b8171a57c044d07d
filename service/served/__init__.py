"""The datasets that are served: opened, described, compared and managed."""
