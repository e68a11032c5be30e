"""What ``python -m optfair`` runs: the command line."""

from optfair.cli.app import main

if __name__ == "__main__":
    main()
