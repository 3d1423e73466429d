"""Values on their way out of the sandbox."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rewards.code.outputs import same_value
from rewards.code.sandbox import values
from rewards.code.test_cases import Expected

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


@given(DATA)
def test_values_survive_the_way_out_of_the_sandbox(value: Any) -> None:
    assert values.loads(values.dumps(value)) == value


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_what_is_not_data_equals_nothing() -> None:
    assert type(values.loads(values.dumps(Liar(0)))) is int
    first, second = (values.loads(values.dumps([object()])) for _ in range(2))
    assert first != second
    assert not same_value(Expected((first,)), second, 1e-6)


class Node:
    """A class that a program may define."""

    __module__ = "__main__"

    def __init__(self, value: object, other: object = None) -> None:
        self.value, self.other = value, other


def test_objects_cross_as_data_however_long_shared_or_cyclic() -> None:
    first = Node(0)
    last = first
    for number in range(1, 5000):
        last.other = Node([number])
        last = last.other
    last.other = first
    back, again = values.loads(values.dumps([first, first]), {"Node": Node})
    assert back is again
    for _ in range(5000):
        back = back.other
    assert back is again
    assert back.other.value == [1]


def test_objects_of_classes_that_are_not_named_stay_opaque() -> None:
    text = values.dumps({"x": Node(1)})
    assert isinstance(values.loads(text)["x"], values.Opaque)
    assert isinstance(values.loads(text, {"Node": dict})["x"], values.Opaque)
