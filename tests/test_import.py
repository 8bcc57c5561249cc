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


def test_submodules_with_an_optional_package_are_loaded_when_asked_for():
    program = "import sys, mpt_bayes as mb; print(mb.gpytorch_mll.MaskedPredictionMLL.__name__, mb.plots.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["MaskedPredictionMLL", "mpt_bayes.plots"]
