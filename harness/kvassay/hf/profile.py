"""A profile for a model of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvassay.hf.shape import shape_of
from kvassay.models import norms_digest
from kvassay.profiles import find
from kvassay.spec import Spec


def fitted_spec(model: Any, name_or_path: str, fields: Mapping[str, Any]) -> Spec:
    """The Spec of a profile with fields changed.

    IdentityError for the profile of another model: weights of a GGUF file and of transformers
    differ in form and rounding, but not in their norms, so these tell whose it is.
    """
    profile = find(name_or_path)
    profile.check_model(model.config.name_or_path or type(model).__name__, norms_of(model))
    return profile.spec(**{**shape_of(model.config), **fields})


def norms_of(model: Any) -> str:
    """The digest of all norm weights over the residual stream."""
    hidden = model.config.get_text_config().hidden_size
    return norms_digest(
        weight.detach().to("cpu").float().numpy()
        for name, weight in model.named_parameters()
        if name.endswith("norm.weight") and weight.shape == (hidden,)
    )
