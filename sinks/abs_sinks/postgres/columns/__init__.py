"""From Arrow columns to a table's: types, checks, encoding, the plan of a COPY."""
