"""The console commands of the service."""
