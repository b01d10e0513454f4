"""What is known of each system, once: options, settings, errors, connections, transactions."""
