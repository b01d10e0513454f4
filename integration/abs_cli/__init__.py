"""The command ``abs``: see :mod:`abs_cli.main`."""
