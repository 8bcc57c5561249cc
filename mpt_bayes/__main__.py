"""`python -m mpt_bayes` is the command `mpt-bayes`."""

import sys

from mpt_bayes.cli import main

sys.exit(main())
