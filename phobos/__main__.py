"""`python -m phobos` is `phobos`."""

import sys


def main() -> None:
    """The console script: Ctrl-C while Python still loads the command line ends it as quietly as later."""
    try:
        from phobos.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
