"""The grid covers what it says, and the model of the life cycle is that of a list of tokens."""

from itertools import combinations

import pytest

from kvassay.spec import LayerSpec

from ..common.pairwise import pairwise
from ..common.specs import make_spec
from .grid import FACTORS, cases, page_cases
from .model import LayerModel
from .plans import PLANS


def test_every_pair_of_values_meets() -> None:
    rows = pairwise(FACTORS)
    for a, b in combinations(FACTORS, 2):
        met = {(row[a], row[b]) for row in rows}
        assert len(met) == len(FACTORS[a]) * len(FACTORS[b]), (a, b)
    assert rows == pairwise(FACTORS)


def test_quick_runs_every_plan_family_and_default_every_plan() -> None:
    assert {case["plan"] for case in [*cases("default"), *page_cases("default")]} == set(PLANS)
    quick = cases("quick")
    assert len(quick) == 12
    assert len({case["plan"] for case in quick}) >= 4
    assert {op[0] for case in cases("default") for op in case["ops"]} == {
        *("append", "truncate", "fork", "reset", "take", "give", "check")
    }


def _layer(span: int | None, sinks: int) -> LayerSpec:
    return make_spec(
        kv_heads=1, query_heads=1, head_dim=64, keys="turbo:4", page_tokens=16,
        span=span, sinks=sinks, window=5,
    ).layer(0)  # fmt: skip


@pytest.mark.parametrize("span", [None, 9, 40])
@pytest.mark.parametrize("sinks", [0, 3])
def test_attend_is_refused_exactly_where_a_needed_token_is_retired(
    span: int | None, sinks: int
) -> None:
    spec = _layer(span, sinks)
    model = LayerModel(spec)
    for chunk in (1, 30, 2, 40, 1, 1, 60):
        model.append(chunk)
        retired = range(sinks, sinks + 16 * model.retired)
        for n in range(1, model.length + 1):
            visible = model.length - n + 1
            wanted = range(max(0, visible - span) if span else 0, visible)
            needs = bool(set(retired) & set(wanted))
            assert model.attend_refused(n) == needs, (model, n)


def test_truncations_that_the_documents_allow() -> None:
    model = LayerModel(_layer(None, 3))
    model.append(60)
    allowed = [n for n in range(61) if not model.truncate_refused(n)]
    # 60 tokens seal 3 pages: sinks; whole pages; and what keeps all three sealed.
    assert allowed == [0, 1, 2, 3, 56, 57, 58, 59, 60]
