"""`python -m pillarbox` is the command `pillarbox`."""

from pillarbox.cli.main import main

main(prog_name="pillarbox")
