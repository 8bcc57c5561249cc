"""Masking seen as dropout: sub-networks and their averages, adaptive penalties, embeddings, tokens left out."""

from mpt_bayes.dropout.attention import average_over_masks, mask_columns
from mpt_bayes.dropout.drop_token import DropToken
from mpt_bayes.dropout.embeddings import CorrectedEmbeddings, Corruption, correct_embeddings, expected_embedding
from mpt_bayes.dropout.ensemble import SubNetworks, all_subnetworks, curvature_gap, sampled_subnetworks, weight_scaled
from mpt_bayes.dropout.interception import Site, dropout_sites
from mpt_bayes.dropout.penalties import (
    dropout_least_squares,
    expected_penalty,
    expected_squared_error,
    quadratic_penalty,
)
from mpt_bayes.dropout.predictive import (
    effective_sample_size,
    model_precision,
    predictive_log_likelihood,
    predictive_standard_error,
)
from mpt_bayes.dropout.removal import removal_gap, states_with_masked_columns, states_with_tokens_removed

__all__ = [
    "CorrectedEmbeddings",
    "Corruption",
    "DropToken",
    "Site",
    "SubNetworks",
    "all_subnetworks",
    "average_over_masks",
    "correct_embeddings",
    "curvature_gap",
    "dropout_least_squares",
    "dropout_sites",
    "effective_sample_size",
    "expected_embedding",
    "expected_penalty",
    "expected_squared_error",
    "mask_columns",
    "model_precision",
    "predictive_log_likelihood",
    "predictive_standard_error",
    "quadratic_penalty",
    "removal_gap",
    "sampled_subnetworks",
    "states_with_masked_columns",
    "states_with_tokens_removed",
    "weight_scaled",
]
