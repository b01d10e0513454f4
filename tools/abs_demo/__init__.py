"""The demo: a streaming job over real flights, killed with SIGKILL again and again, then audited."""
