"""Tests of what data is: names, schemas, records and their checks."""
