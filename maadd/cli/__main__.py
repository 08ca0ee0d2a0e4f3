"""`python -m maadd.cli` is `maad`."""

import sys

from maadd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
