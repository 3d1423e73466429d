"""Books that balance, and those that do not; what a lost Redis leaves of them."""

from __future__ import annotations

from buffer.rules.books import Books, books_from_counts, counts_after_loss
from buffer.rules.places import Place


def test_books_balance_only_if_they_do() -> None:
    books = books_from_counts(
        1,
        2,
        3,
        {
            "started": 10,
            "trained": 2,
            "rejected": 1,
            "dropped": 1,
            "dropped:stale": 1,
            "dropped_tokens:stale": 50,
        },
    )
    assert books.balanced
    assert books.as_dict()["dropped"] == {"stale": 1}
    assert not books_from_counts(0, 0, 0, {"started": 1}).balanced
    assert books_from_counts(0, 0, 0, books.counts() | {"in_flight": 0}).dropped_tokens == {"stale": 50}


def test_after_a_loss_what_was_open_is_lost_and_what_was_trained_since_is_rolled_back() -> None:
    saved = Books(started=6, pending=2, trained=4)
    seen = Books(started=10, in_flight=1, pending=2, claimed=1, trained=6)
    after = books_from_counts(0, 0, 0, counts_after_loss(saved.counts(), seen.counts()))
    assert after == Books(started=10, trained=4, dropped={"lost": 4, "rolled back": 2})
    assert after.balanced
    forgotten = books_from_counts(0, 0, 0, counts_after_loss(saved.counts(), None))
    assert forgotten == Books(started=6, trained=4, dropped={"lost": 2})


def test_every_place_is_counted() -> None:
    books = Books(15, 1, 2, 3, 4, 2, {"stale": 2, "corrupt": 1})
    assert books.places == dict(zip(Place, (1, 2, 3, 4, 2, 3), strict=True))
    assert books.balanced
