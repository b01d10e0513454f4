"""What is known of Iceberg tables, through the library pyiceberg."""
