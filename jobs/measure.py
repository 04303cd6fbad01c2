"""spark-submit entry of `veclink measure`: same options, the session comes from spark-submit."""

import sys

from veclink.cli import main

if __name__ == "__main__":
    main(["measure", *sys.argv[1:]])
