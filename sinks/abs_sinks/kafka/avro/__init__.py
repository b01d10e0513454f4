"""Records with an Avro schema: the encoder by columns, and where the schema's id comes from."""
