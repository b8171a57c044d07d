"""The known consumers: their wirings as data (`systems/*.toml`), and resolvers that turn what one would read
into explicit boundaries, with the reason for each step.
"""
