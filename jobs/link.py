"""spark-submit entry of `veclink link`: same options, the session comes from spark-submit."""

import sys

from veclink.cli import main

if __name__ == "__main__":
    main(["link", *sys.argv[1:]])
