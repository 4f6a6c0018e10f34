"""`python -m graphdoc`: see graphdoc.command."""

import sys

from graphdoc.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
