"""`python -m phobos` is `phobos`."""

import sys


def main() -> None:
    """The console script: Ctrl-C while Python still loads the command line ends it as quietly as later."""
    try:
        from phobos.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except ModuleNotFoundError as error:
        from phobos.diagnostics import missing_package

        found = missing_package(error)
        if found is None:
            raise
        sys.stderr.write(found.render() + "\n")
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
