"""The command `gpucache`: becomes the package's tool, which finds the library in the package."""
import os
import sys

from gpucache import _library


def main():
    """Does not return."""
    try:
        os.execv(_library.TOOL, ["gpucache", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"gpucache: {_library.TOOL}: {error.strerror}")


if __name__ == "__main__":
    main()
