"""``python -m trine`` is the ``trine`` command."""

from trine.cli.main import main

main()
