"""Avro: schemas, the types of their values in Arrow, and the registry that keeps them."""
