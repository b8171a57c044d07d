"""Trainers that read from Strata without a copy on disk: a module a trainer's own plug-in point.

The one room of the service with torch, datasets and the trainers' packages; each module needs its own ones.
"""
