"""`python -m engine`: every command, without Qt."""

import sys

from engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
