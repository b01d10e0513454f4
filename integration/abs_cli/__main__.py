"""``python -m abs_cli``: the command ``abs`` where its script is not on the PATH."""

from abs_cli.main import main

main()
