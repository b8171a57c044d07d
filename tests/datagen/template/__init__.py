"""Tests of rendering and masks."""
