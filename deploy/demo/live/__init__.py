"""speculators' own trainer from files and live, side by side: `make train-demo`.

The same steps on the demo's states, from an export, from the dataset where it lies, and from a service over
HTTP: every loss must be the same number.
"""
