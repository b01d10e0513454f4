"""What is known of Delta tables, through the library deltalake."""
