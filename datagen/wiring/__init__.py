"""What a check of wirings reads and writes: configs, cards, and the headers of a draft's weights."""
