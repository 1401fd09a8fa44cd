from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.families import Family, ListedFamily, family_of


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.data())
def test_groups_on_a_grid_are_found_to_be_on_one(data: st.DataObject) -> None:
    axes = st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 40).filter(bool)), max_size=3)
    family = Family("x", tuple(data.draw(axes)), tuple(data.draw(axes)), data.draw(st.integers(0, 9)))
    groups = list(family.groups())
    found = family_of("x", groups)
    assert list(found.groups()) == groups
    assert (found.group_size, found.group_count) == (family.group_size, family.group_count)
    assert found.bounds() == (min(map(min, groups)), max(map(max, groups)))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_any_groups_make_a_family_that_gives_them_back(size: int, count: int, data: st.DataObject) -> None:
    ranks = data.draw(st.permutations(range(size * count)))
    groups = [tuple(ranks[at * size : (at + 1) * size]) for at in range(count)]
    found = family_of("x", groups)
    assert list(found.groups()) == groups
    assert found.bounds() == (0, size * count - 1)


def test_what_is_on_a_grid_is_small_and_what_is_not_is_listed() -> None:
    tensor = [tuple(range(first, first + 8)) for first in range(0, 4096, 8)]
    assert family_of("tp", tensor) == Family("tp", ((8, 1),), ((512, 8),))
    data = [tuple(range(first, 4096, 8)) for first in range(8)]
    assert family_of("dp", data) == Family("dp", ((512, 8),), ((8, 1),))
    expert_copies = [(base, base + 64) for base in (0, 1, 2, 3, 16, 17, 18, 19)]
    assert family_of("dp", expert_copies) == Family("dp", ((2, 64),), ((2, 16), (4, 1)))
    assert family_of("odd", [(0, 1, 3)]) == ListedFamily("odd", ((0, 1, 3),))
