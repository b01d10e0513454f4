"""Contract checks for authors of state backends and snapshot stores."""
