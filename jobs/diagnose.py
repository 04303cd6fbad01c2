"""spark-submit entry of `veclink diagnose`: same options, the session comes from spark-submit."""

import sys

from veclink.cli import main

if __name__ == "__main__":
    main(["diagnose", *sys.argv[1:]])
