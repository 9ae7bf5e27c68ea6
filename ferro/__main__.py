"""`python -m ferro`."""

import sys

from ferro.cli import main

sys.exit(main())
