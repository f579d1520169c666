"""The evidence of the system tests is no worse for a writer that was killed."""

import journal


def test_a_part_of_a_line_is_left_out_and_spoils_no_other(tmp_path):
    file = tmp_path / "journal"
    journal.append(file, {"n": 1})
    with file.open("ab") as lines:
        lines.write(journal.as_line({"n": 2, "worker": "killed"})[:12])
    assert journal.records(file) == [{"n": 1}]
    journal.append(file, {"n": 3})
    assert journal.records(file) == [{"n": 1}, {"n": 3}]
