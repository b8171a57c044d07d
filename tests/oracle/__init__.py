"""Other systems' own code, run on a CPU, as the oracle for the declared wirings (`make oracle`)."""
