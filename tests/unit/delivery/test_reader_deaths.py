"""How a message is read that came back, by what is known of its readers' deaths."""

from __future__ import annotations

import pytest

from angzarr.delivery.reader_deaths import MOST_DEATHS, ReadersDied, Reading, reading_after


@pytest.mark.parametrize(
    ("deaths", "redelivered", "reading"),
    [
        (0, False, Reading.WITH_OTHERS),
        (0, True, Reading.ALONE),
        (1, False, Reading.ALONE),
        (1, True, Reading.ALONE),
        (MOST_DEATHS - 1, True, Reading.ALONE),
        (MOST_DEATHS, False, Reading.NEVER),
        (MOST_DEATHS, True, Reading.NEVER),
        (1000, True, Reading.NEVER),
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
