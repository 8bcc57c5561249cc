"""What `import mpt_bayes` costs: nothing but torch and numpy."""

import subprocess
import sys

HEAVY = ["pyro", "gpytorch", "transformers", "sklearn", "matplotlib", "statsmodels", "pandas", "scipy", "rich", "typer"]


def test_import_loads_no_heavy_package():
    program = f"import sys, mpt_bayes; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_loads_its_own_packages_only():
    program = f"import sys, mpt_bayes.cli.app; print([name for name in {HEAVY[:-2]} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
