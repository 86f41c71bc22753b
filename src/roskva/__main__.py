"""`python -m roskva`: the command line."""

from roskva.cli.main import main

if __name__ == "__main__":
    main()
