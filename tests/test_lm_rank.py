"""Effective rank by layer."""

import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.lm.architectures import build
from mpt_bayes.lm.rank import representation_rank
from mpt_bayes.representation import effective_rank

MASK = 20


def model(architecture, **options):
    sizes = {"vocab_size": 21, "mask_token_id": MASK, "max_length": 12, "layers": 2, "width": 16, "heads": 2}
    return mb.lm.masked_diffusion(build(architecture, **{**sizes, **options}), mask_token_id=MASK)


def texts(count=24, lengths=(12, 9)):
    generator = torch.Generator().manual_seed(0)
    return [
        mb.lm.from_ids(torch.randint(0, MASK, (lengths[k % len(lengths)],), generator=generator)) for k in range(count)
    ]


@pytest.mark.parametrize("architecture", ["bert", "mae_lm"])
def test_table_has_a_row_a_layer_and_mask_rows_where_there_are_masks(architecture):
    table = representation_rank(model(architecture), texts(), rate=0.25)
    assert [row.layer for row in table.layers] == [0, 1, 2]
    assert table.n_rows == 12 * (12 - 3) + 12 * (9 - 2)
    assert table.n_mask_rows == (12 * 3 + 12 * 2) * (architecture == "bert")
    has_masks = architecture == "bert"
    assert all((row.mask is not None) == (row.all_masked is not None) == has_masks for row in table.layers)
    assert all(1 <= row.whole <= 16 for row in table.layers)
    columns = ["layer", "whole", "masked", "mask", "all_whole", "all_masked", "gap"]
    assert list(table.to_dataframe().columns) == columns


def test_mask_rows_can_add_directions_of_their_own():
    """All tokens in two directions, [MASK] in a third: only the matrix with [MASK] rows has rank 3."""
    one = model("bert")
    embeddings = one.module.bert.embeddings
    embeddings.LayerNorm = torch.nn.Identity()
    with torch.no_grad():
        for part in (embeddings.position_embeddings, embeddings.token_type_embeddings):
            part.weight.zero_()
        table = embeddings.word_embeddings.weight
        table.zero_()
        table[0:MASK:2, 0] = table[1:MASK:2, 1] = table[MASK, 2] = 1.0
    first = representation_rank(one, texts(), rate=0.4, tau=0.999).layers[0]
    assert (first.whole, first.masked, first.mask) == (2, 2, 1)
    assert (first.all_whole, first.all_masked) == (2, 3)


def test_ranks_are_those_of_the_states():
    one = model("bert")
    same = [
        mb.lm.from_ids(torch.arange(12)[torch.randperm(12, generator=torch.Generator().manual_seed(k))])
        for k in range(9)
    ]
    table = representation_rank(one, same, rate=0.01, center=True)  # one token hidden in each
    with torch.no_grad():
        states = one.module.bert(torch.stack([t.ids for t in same]), output_hidden_states=True).hidden_states
    whole = effective_rank(states[1].flatten(0, 1), tau=0.9, center=True)
    assert abs(table.layers[1].whole - whole) <= 1


def test_embeddings_of_visible_tokens_do_not_know_what_is_hidden():
    for architecture in ("bert", "mae_lm"):
        first = representation_rank(model(architecture), texts(), rate=0.5).layers[0]
        assert first.whole == first.masked


def test_too_few_tokens_and_silent_modules_are_named():
    with pytest.raises(DataError, match="not more than the width"):
        representation_rank(model("bert"), texts(1))
    with pytest.raises(DataError, match="texts is empty"):
        representation_rank(model("bert"), [])

    class Silent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, input_ids, attention_mask=None, output_hidden_states=False):
            return self.weight * torch.ones(*input_ids.shape, 21)

    with pytest.raises(ModelError, match="does not tell its layers"):
        representation_rank(mb.lm.masked_diffusion(Silent(), mask_token_id=MASK), texts())
