"""`python -m remoteprof`."""

from remoteprof.cli import main

if __name__ == "__main__":
    main()
