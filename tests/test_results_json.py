"""Every result has to_dict with a schema that is shipped, the digest of its data, and a data frame."""

import inspect
import json
from importlib import resources

import jsonschema
import pandas as pd
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes import estimation, results, training
from mpt_bayes.digest import data_digest
from mpt_bayes.models import BernoulliEmission, ImportanceBank
from mpt_bayes.objectives import RandomRate
from tests.model_examples import normals

MODEL = mb.models.PPCA(normals(0, 5, 2), 0.4)
X = normals(1, 8, 5)
ONE_ORDER = mb.masks.RandomOrders(1)
"""Without a standard error: what cannot be had is null."""
SLOPES = torch.linspace(-1, 1, 5, dtype=torch.float64)
DRAWN = ImportanceBank(lambda z: BernoulliEmission.from_logits(z * SLOPES), None, latent_dim=1, n_samples=50)
BITS = (X > 0).double()

MADE = {
    "Attribution": [lambda: mb.attribution(MODEL, X), lambda: mb.attribution(MODEL, X, design=ONE_ORDER)],
    "ChainRule": [lambda: mb.chain_rule(MODEL, X), lambda: mb.chain_rule(MODEL, X, n_orders=1)],
    "Comparison": [
        lambda: mb.compare(MODEL, X),
        lambda: mb.compare(MODEL, X, design=ONE_ORDER),
        lambda: mb.compare(DRAWN, BITS),
    ],
    "Convergence": [lambda: mb.convergence(MODEL, X, numbers=[1, 4])],
    "Estimate": [
        lambda: mb.cumulative_score(MODEL, X),
        lambda: mb.masked_score(MODEL, X, rate=0.5),
        lambda: mb.cumulative_score(DRAWN, BITS),
    ],
    "ModelComparison": [
        lambda: mb.compare_models({"one": MODEL}, X),
        lambda: mb.compare_models({"one": MODEL}, X, test=X[:2]),
    ],
    "Plan": [lambda: mb.plan(MODEL, X)],
    "ScoreCurve": [
        lambda: mb.score_curve(MODEL, X),
        lambda: mb.score_curve(MODEL, X, design=ONE_ORDER),
        lambda: mb.score_curve(DRAWN, BITS),
    ],
    "Sweep": [
        lambda: mb.sweep(MODEL, X, [0.2, 1.0]),
        lambda: mb.sweep(MODEL, X, [0.5], n_masks=1),
        lambda: mb.sweep(DRAWN, BITS, [0.5]),
    ],
    "TrainingResult": [lambda: training.train(MODEL, X, RandomRate(), settings=training.TrainingSettings(epochs=2))],
    "Verification": [lambda: mb.verify(MODEL, X), lambda: mb.verify(DRAWN, BITS)],
}
CASES = [pytest.param(name, make, id=f"{name}-{i}") for name, ways in MADE.items() for i, make in enumerate(ways)]


def test_every_result_is_here():
    found = {
        name
        for module in (results, estimation, training)
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if hasattr(kind, "to_dict")
    }
    assert found == set(MADE)


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_result_obeys_its_schema_and_says_which_data_it_is_of(name, make):
    schemas = json.loads((resources.files("mpt_bayes") / "schemas" / "results.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schemas | {"$ref": f"#/$defs/{name}"})
    made = make()
    assert type(made).__name__ == name
    text = json.dumps(made.to_dict(), allow_nan=False)
    document = json.loads(text)
    validator.validate(document)
    with pytest.raises(jsonschema.ValidationError, match="schema_version"):
        validator.validate({key: value for key, value in document.items() if key != "schema_version"})
    assert data_digest(X) in text or data_digest(BITS) in text
    assert isinstance(made.to_dataframe(), pd.DataFrame)
