"""Records with an Avro schema as columns: the decoder, and Avro's rules of evolution."""
