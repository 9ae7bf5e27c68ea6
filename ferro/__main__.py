"""`python -m ferro`."""

from ferro.cli import console

console()
