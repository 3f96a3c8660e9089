"""Every codec on every data set: what `kvassay codecs` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import InputError, SpecError, UnavailableError
from ..suggest import did_you_mean
from ..vector_codec import ROLES, VectorCodec, codec, codecs, parameters
from .data import KINDS, DataSet, captured, synthetic
from .figures import Figures, check_baselines, measure, ranked


def data_sets(
    kinds: Sequence[str], models: Sequence[str], head_dim: int, tokens: int, seed: int
) -> Iterator[DataSet]:
    """Synthetic data of these kinds (default: all), then data captured from these models."""
    for kind in kinds or KINDS:
        yield synthetic(kind, head_dim, tokens, seed=seed)
    for source in models:
        from ..models import load  # needs gguf and the model

        yield captured(load(source), Path(source).stem, tokens)


def choose(names: Sequence[str]) -> list[str]:
    """The codecs of these names, all where none are given; raises SpecError for unknown ones."""
    known = codecs()
    for name in names:
        if name not in known:
            raise SpecError(f"--codec: no codec {name!r}{did_you_mean(name, known)}")
    if not known:
        raise InputError("codecs: none are installed")
    return list(names or known)


def compare(
    names: Sequence[str],
    data: DataSet,
    role: str,
    all_rates: bool = False,
    leave_out: Callable[[str], None] = lambda reason: None,
    track: Callable[[Sequence[str]], Iterable[str]] = lambda names: names,
) -> list[Figures]:
    """Arms of one data set, ranked. `leave_out` hears why a codec cannot store this head dim,
    `track` gives the names of the arms back and sees how far they are.

    Raises SpecError for another role than key and value, InputError where no codec is left, and
    KvassayError where a baseline is not what it says.
    """
    if role not in ROLES:
        raise SpecError(f"--role: {role!r} is not one of {', '.join(ROLES)}")
    made = {f"{c.name} {c.bits:g}": c for c in _codecs(names, data, role, all_rates, leave_out)}
    if not made:
        raise InputError(f"codecs: none of {', '.join(names)} stores head dim {data.head_dim}")
    check_baselines(made)
    return ranked([measure(made[name], data) for name in track(list(made))])


def _codecs(
    names: Sequence[str],
    data: DataSet,
    role: str,
    all_rates: bool,
    leave_out: Callable[[str], None],
) -> Iterator[VectorCodec]:
    """Whole rates and the default one of each codec, or all rates.

    A codec that can store keys as they were before RoPE does so, where there is one.
    """
    for name in names:
        rates = codecs()[name].rates
        turns = role == "key" and data.rope_base and "rope_base" in parameters(codecs()[name])
        extra = {"rope_base": data.rope_base} if turns else {}
        for bits in sorted(r for r in rates if all_rates or r == int(r) or r == rates[0]):
            try:
                yield codec(name, head_dim=data.head_dim, bits=bits, role=role, **extra)
            except (SpecError, UnavailableError) as error:
                leave_out(str(error))
