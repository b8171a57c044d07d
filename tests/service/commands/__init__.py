"""Tests of `service.commands`."""
