"""How a message is read that came back, by what is known of its readers' deaths."""

from __future__ import annotations

import pytest

from angzarr.delivery.unreadable import MOST_DEATHS, ReadersDied, ReadMode, reading_after


@pytest.mark.parametrize(
    ("deaths", "redelivered", "reading"),
    [
        (0, False, ReadMode.WITH_OTHERS),
        (0, True, ReadMode.ALONE),
        (1, False, ReadMode.ALONE),
        (1, True, ReadMode.ALONE),
        (MOST_DEATHS - 1, True, ReadMode.ALONE),
        (MOST_DEATHS, False, ReadMode.NEVER),
        (MOST_DEATHS, True, ReadMode.NEVER),
        (1000, True, ReadMode.NEVER),
    ],
)
def test_it_is_read_alone_from_the_first_death_on_and_never_after_three(
    deaths, redelivered, reading
):
    assert reading_after(deaths, redelivered=redelivered) is reading


def test_the_letter_says_how_many_died_and_of_what():
    assert str(ReadersDied(3, 2)) == (
        "3 workers died, at least 2 of them while they read this message: it is kept as it came,"
        " and read by none"
    )
