"""Tests of `deploy.demo`."""
