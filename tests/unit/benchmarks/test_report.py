from __future__ import annotations

from harness import report
from harness.figure import Figure, Measured


def figure(key, aim):
    return Figure(
        key=key, title=f"title of {key}", unit="ms", aim=aim, against=f"against {key}",
        how=f"how {key}", measure=lambda: Measured(values=[1.0]),
    )  # fmt: skip


def entry(of, values, machine="a machine"):
    return of.entry(Measured(values=values, detail={"machine": machine, "events_a_run": 10_000}))


def test_every_figure_has_a_row_that_says_whether_it_reached_its_aim():
    good, bad, absent = figure("good", "≤ 5 ms"), figure("bad", "≤ 5 ms"), figure("absent", "= 0")
    entries = {"good": entry(good, [4, 3, 5]), "bad": entry(bad, [9, 1200, 8])}

    page = report.render(entries, [good, bad, absent])

    assert "| `good` title of good | 4 ms | ≤ 5 ms | yes | 3 | 3 to 5 |" in page
    assert "| `bad` title of bad | 9 ms | ≤ 5 ms | **no** | 3 | 8 to 1,200 |" in page
    assert "| `absent` title of absent | not measured | = 0 | - | - | - |" in page
    assert page.count("## ") == 2


def test_an_entry_is_judged_by_the_aim_of_today():
    then, today = figure("raised", "≤ 5 ms"), figure("raised", "≤ 3 ms")
    page = report.render({"raised": entry(then, [4])}, [today])
    assert "| `raised` title of raised | 4 ms | ≤ 3 ms | **no** | 1 | 4 to 4 |" in page


def test_a_section_says_how_and_against_what():
    only = figure("only", "≤ 5 ms")
    page = report.render({"only": entry(only, [4])}, [only])
    assert "how only" in page
    assert "Against: against only." in page
    assert "* events a run: 10,000" in page
    assert "Measured on: a machine." in page


def test_figures_of_two_machines_are_told_apart():
    one, two = figure("one", "≤ 5 ms"), figure("two", "≤ 5 ms")
    entries = {"one": entry(one, [4], "a laptop"), "two": entry(two, [4], "a server")}
    page = report.render(entries, [one, two])
    assert "* `one`: a laptop" in page
    assert "* `two`: a server" in page
