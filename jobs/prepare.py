"""spark-submit entry of `veclink prepare`: same options, the session comes from spark-submit."""

import sys

from veclink.cli import main

if __name__ == "__main__":
    main(["prepare", *sys.argv[1:]])
