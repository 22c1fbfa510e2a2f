"""`python -m phobos` is `phobos`."""

from phobos.cli import main

if __name__ == "__main__":
    main()
