"""What ``python -m biaseval`` runs: the command line."""

from biaseval.cli import main

main()
