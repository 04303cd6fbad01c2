"""spark-submit entry of `veclink cycles`: same options, the session comes from spark-submit."""

import sys

from veclink.cli import main

if __name__ == "__main__":
    main(["cycles", *sys.argv[1:]])
