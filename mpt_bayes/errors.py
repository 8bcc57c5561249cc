"""One kind of error for each thing a user can do about it.

Every message is one line: what is wrong, which row or argument, what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpt_bayes.training import Epoch


class MptBayesError(Exception):
    """Base of every error this library raises on purpose."""


class MptBayesWarning(UserWarning):
    """Base of every warning this library issues."""


class ArgumentError(MptBayesError, ValueError):
    """An argument is outside what the function accepts: change the argument."""


class DataError(MptBayesError, ValueError):
    """The data cannot be scored as given: mend the named rows, or say how to treat them."""


class NotFiniteError(DataError):
    """A score is not finite; `row` is the row of the data it belongs to."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(
            f"the score of row {row} is not finite ({reason} under the model): check that row and the model"
        )
        self.row = row
        self.reason = reason


class ModelError(MptBayesError, ValueError):
    """The model's parameters do not define a proper distribution: mend the model."""


class NotPositiveDefiniteError(ModelError):
    """A covariance is not positive definite. `smallest_eigenvalue` says by how much."""

    def __init__(self, message: str, smallest_eigenvalue: float) -> None:
        super().__init__(message)
        self.smallest_eigenvalue = smallest_eigenvalue


class IllConditionedError(ModelError):
    """A covariance is too nearly singular for the precision in use. `condition_number` says how nearly."""

    def __init__(self, message: str, condition_number: float) -> None:
        super().__init__(message)
        self.condition_number = condition_number


class BudgetError(MptBayesError, ValueError):
    """The work asked for exceeds the stated budget: raise the budget or choose a cheaper design."""


class EstimandError(MptBayesError, TypeError):
    """Two numbers that estimate different quantities were combined."""


class DivergedError(MptBayesError):
    """Training ceased to give numbers: lower the learning rate. `history` holds the epochs completed before; that of
    pre-training is in the folder of the run."""

    def __init__(self, message: str, history: tuple[Epoch, ...]) -> None:
        super().__init__(message)
        self.history = history


class DependencyError(MptBayesError, ImportError):
    """An optional package is not installed: the message names the extra to install."""
