"""veclink: which vector of one embedding cloud and which of another are the same object.

Importing this package loads neither Spark nor a GPU library.
"""

__version__ = "0.1.0"
