from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of, message_of
from tests.unit.analysis.worker.test_worker import World
from tests.unit.dead_letters.test_protection import CIPHER, SIGN, protection, secret_letter

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay import edit
from angzarr.analysis.replay.edit import (
    DEEPEST,
    LARGEST,
    MOST_TOLD,
    UNSEEN,
    differences,
    hidden_as,
    is_cut,
    read_data,
    restored,
    seen_differences,
    touches_hidden,
)
from angzarr.analysis.replay.editor import Draft, Editor
from angzarr.analysis.replay.replay import ReplayTargets
from angzarr.dead_letters.letter import Refusal
from angzarr.dead_letters.masking import MARK
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.protection import SEALED, Clearance, Encrypt, Protection
from angzarr.errors import DecodeError
from angzarr.events import headers as names

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


# -- rules -----------------------------------------------------------------------------------


@given(json_values)
def test_what_a_person_writes_is_read_as_json(value):
    assert read_data(json.dumps(value)) == value
    assert differences(value, value) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("NaN", "NaN is not a JSON number"),
        ("[1e400]", "1e400 is too large a number"),
        ('{"a": 1, "a": 2}', "has the name 'a' twice"),
        ("[" * 60 + "]" * 60, f"deeper than {DEEPEST}"),
        ("[" * 200_000, "deeper than"),
        ('"' + "x" * LARGEST + '"', "more than"),
    ],
)
def test_hostile_or_broken_data_is_refused_in_one_sentence(text, said):
    found = read_data(text)
    assert isinstance(found, Refusal)
    assert said in found


def test_each_change_is_told_by_its_json_pointer():
    before = {"total": 3, "a/b": {"~": 1}, "lines": [1, 2], "gone": True, "same": None}
    after = {"total": "3", "a/b": {"~": 2}, "lines": [1, 5], "same": None, "new": {}}
    assert [str(one) for one in differences(before, after)] == [
        '/total: 3 → "3"',
        "/a~1b/~0: 1 → 2",
        "/lines/1: 2 → 5",
        "/gone: true → nothing",
        "/new: nothing → {}",
    ]
    assert str(differences(1, [True])[0]) == "(all): 1 → [true]"


def test_so_many_changes_are_told_and_no_more():
    found = differences([0] * 500, [1] * 500)
    assert (len(found), found[-1].after) == (MOST_TOLD + 1, "more changes")
    assert len(str(differences("", "x" * 9999)[0])) < 300


@given(json_values)
def test_data_left_as_it_was_shown_is_the_whole_again(value):
    whole = {"secret": value, "list": [{"secret": "x"}, 1]}
    shown = {"secret": MARK, "list": [{"secret": MARK}, 1]}
    assert restored(shown, shown, whole) == whole
    assert restored({**shown, "more": 1}, shown, whole) == {**whole, "more": 1}


@pytest.mark.parametrize(
    "data",
    [
        {"secret": "new", "other": MARK},
        {"list": [MARK]},
        {"list": [1, {"secret": MARK}, 2]},
        MARK,
        {"secret": {"deep": MARK}},
        {"secret": SEALED},
    ],
)
def test_a_mark_is_never_sent_for_the_value_that_it_hides(data):
    shown = {"secret": MARK, "list": [{"secret": MARK}, 1]}
    whole = {"secret": "s", "list": [{"secret": "x"}, 1]}
    found = restored(data, shown, whole)
    assert isinstance(found, Refusal)
    assert "mark of a hidden value" in found


# -- the editor ------------------------------------------------------------------------------


class Site(World):
    def __init__(self, protect=None, clear=None, decode=None):
        super().__init__()
        targets = ReplayTargets(tasks=self.tasks, queues={"orders"}, clear=clear or Clearance())
        self.replayer = replace(self.replayer, targets=targets)
        self.protect = protect or Protection()
        self.editor = Editor(
            replayer=self.replayer, decoder=lambda _task: decode, protect=self.protect
        )
        self.worker = self.start_worker()

    def file(self, letter):
        entry = self.ledger.add_failed_event(letter)
        self.failure = self.ledger.open(entry.id).failure
        return entry

    def draft(self, data):
        return self.editor.draft(self.entry, self.failure, data)

    def send(self, data):
        draft = self.draft(data)
        assert isinstance(draft, Draft), draft
        entry = self.entry
        assert not self.replayer.replay(entry, self.failure, by="ann", order=draft.order)
        (args, kwargs, _) = json.loads(self.publisher.sent[-1].body)
        return args[0] if len(args) == 1 and not kwargs else (args, kwargs)


def test_an_edited_replay_carries_the_new_data_and_names_its_edit():
    site = Site()
    entry = site.file(letter_of())
    assert site.editor.shown(site.failure) == {"total": 3}
    assert site.send({"total": 4}) == {"total": 4}
    message = site.publisher.sent[-1]
    assert message.headers[names.EDIT] == f"{entry.id[:12]}#1"
    assert message.headers[names.EVENT_ID] == "e1"
    detail = site.ledger.open(entry.id)
    assert detail.failure == letter_of()
    line = [line for line in detail.history if line.what == "retrying"][-1]
    assert (line.who, line.detail) == ("ann", "replay 1 edited: /total: 3 → 4")
    assert detail.order.before == letter_of()


def test_an_edit_that_was_begun_is_sent_as_it_was_whoever_sends_it():
    site = Site()
    site.file(letter_of())
    draft = site.draft({"total": 4})
    entry = site.entry
    site.ledger.mark_retrying(
        entry.id, 1, revision=entry.revision, by="ann", lease=site.replayer.lease,
        order=draft.order,
    )  # fmt: skip
    site.clock.sleep(site.replayer.lease)
    site.worker.step()
    assert json.loads(site.publisher.sent[-1].body)[0] == [{"total": 4}]
    assert site.entry.status is Status.RETRYING


def test_data_that_does_not_fit_the_handler_is_refused_with_every_problem():
    def decode(data):
        problems = [name for name in ("total", "user") if name not in data]
        if problems:
            raise DecodeError(f"{' and '.join(problems)} are missing")

    site = Site(decode=decode)
    site.file(letter_of())
    assert "total and user are missing" in site.draft({})
    assert isinstance(site.draft({"total": 1, "user": 2}), Draft)


def test_nothing_changed_is_nothing_to_replay():
    site = Site()
    site.file(letter_of())
    assert "nothing was changed" in site.draft({"total": 3})


@pytest.mark.parametrize("signatures", [None, SIGN])
def test_a_hidden_value_is_kept_and_never_shown(signatures):
    signed = {"signatures": signatures} if signatures else {}
    protect = protection(**signed)
    site = Site(protect, Clearance(cipher=CIPHER, **signed))
    site.file(protect(secret_letter()))
    assert site.editor.shown(site.failure) == {"user": "ann", "password": MARK}
    assert site.send({"user": "bob", "password": MARK}) == {"user": "bob", "password": "hunter2"}
    kept = repr(site.ledger.open(site.entry.id))
    assert "hunter2" not in kept
    assert '/user: "ann" → "bob"' in kept


def test_a_model_that_repeats_a_hidden_value_does_not_show_it():
    def decode(data):
        raise DecodeError(f"bad password {data['password']}")

    protect = protection()
    site = Site(protect, Clearance(cipher=CIPHER), decode)
    site.file(protect(secret_letter()))
    said = site.draft({"user": "bob", "password": MARK})
    assert "does not fit the handler" in said
    assert "hunter2" not in said


def test_a_new_secret_is_sent_and_hidden_like_the_old_one():
    protect = protection()
    site = Site(protect, Clearance(cipher=CIPHER))
    site.file(protect(secret_letter()))
    new = {"user": "bob", "password": "swordfish"}
    assert site.send(new) == new
    assert "swordfish" not in repr(site.ledger.open(site.entry.id))


def test_a_letter_that_is_sealed_whole_can_only_be_given_whole():
    protect = protection(Encrypt.ALL)
    site = Site(protect, Clearance(cipher=CIPHER))
    site.file(protect(secret_letter()))
    assert site.editor.shown(site.failure) == SEALED
    assert "nothing was changed" in site.draft(SEALED)
    assert site.send({"user": "bob"}) == {"user": "bob"}
    assert "bob" not in repr(site.ledger.open(site.entry.id))


def test_a_change_that_may_not_be_seen_is_told_without_it():
    protect = protection()
    site = Site(protect, Clearance(cipher=CIPHER))
    site.file(protect(secret_letter()))
    data = {"user": "ann", "password": "swordfish"}
    assert [str(one) for one in site.draft(data).changes] == [
        "(all): nothing → a hidden value was changed"
    ]
    assert site.send(data) == data


TEN = replace(message_of(), body=b'[[{"total": 10}], {}, {"callbacks": null}]')


def of_another_app():
    """An app that has the key of the letter's worker and hides nothing by itself."""
    theirs = protection()
    site = Site(Protection(), Clearance(cipher=CIPHER))
    site.file(theirs(secret_letter()))
    return site


def test_what_a_worker_hid_is_hidden_by_every_app_that_can_open_it():
    site = of_another_app()
    assert site.editor.shown(site.failure) == {"user": "ann", "password": MARK}


def test_an_edit_of_a_sealed_letter_is_never_kept_open():
    site = of_another_app()
    assert "its worker sealed it" in site.draft({"user": "bob", "password": MARK})


def test_a_hidden_value_cannot_be_found_out_by_trying():
    protect = protection()
    site = Site(protect, Clearance(cipher=CIPHER))
    site.file(protect(secret_letter()))
    said = [
        [str(one) for one in site.draft({"user": user, "password": guess}).changes]
        for user in ("ann", "bob")
        for guess in ("hunter2", "hunter1")
    ]
    assert said[0] == said[1]
    assert said[2] == said[3]


def test_an_edit_of_the_original_is_told_against_what_would_be_sent_else():
    site = Site()
    site.file(letter_of())
    now = replace(letter_of(), message=TEN)
    draft = site.editor.draft(site.entry, site.failure, {"total": 3}, now=now)
    assert [str(one) for one in draft.changes] == ["/total: 10 → 3"]
    assert draft.order.before == now
    same = site.editor.draft(site.entry, site.failure, {"total": 10}, now=now)
    assert "nothing was changed" in same


def test_an_edit_that_is_hidden_as_a_whole_cannot_be_reviewed():
    protect = protection(Encrypt.ALL)
    site = Site(protect, Clearance(cipher=CIPHER))
    site.file(protect(secret_letter()))
    draft = site.draft({"user": "bob", "password": "x"})
    assert "hidden as a whole" in site.editor.told(draft.order)


@given(
    st.recursive(
        st.none() | st.integers() | st.sampled_from(["a", MARK, SEALED]),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    )
)
def test_what_was_hidden_once_stays_hidden_and_is_touched_by_anything_else(filed):
    assert hidden_as(filed, filed) == filed
    assert not touches_hidden(filed, filed)
    assert touches_hidden(filed, opened(filed)) == (opened(filed) != filed)
    assert hidden_as(opened(filed), filed) == filed


def opened(data):
    if isinstance(data, dict):
        return {name: opened(value) for name, value in data.items()}
    if isinstance(data, list):
        return [opened(value) for value in data]
    return "secret" if data in (MARK, SEALED) else data


def test_without_a_key_what_would_be_hidden_cannot_be_kept():
    site = Site(protection(cipher=None))
    site.file(letter_of())
    assert "no key to seal them" in site.draft({"total": 3, "password": "x"})


def test_a_body_in_the_payload_store_can_be_edited():
    site = Site()
    letter = letter_of()
    site.file(without_body(letter, site.payloads.put(letter.message.body)))
    assert site.editor.shown(site.failure) == {"total": 3}
    assert site.send({"total": 5}) == {"total": 5}


def test_all_arguments_of_a_plain_task_are_edited_together():
    message = replace(letter_of().message, body=b'[[1, 2], {"k": 3}, {"chain": null}]')
    site = Site()
    site.file(letter_of(message=message))
    assert site.editor.shown(site.failure) == {"args": [1, 2], "kwargs": {"k": 3}}
    assert '"args"' in site.draft({"args": 1})
    assert site.send({"args": [1, 9], "kwargs": {"k": 3}}) == ([1, 9], {"k": 3})


@pytest.mark.parametrize(
    "message",
    [
        replace(letter_of().message, content_type="application/x-python-serialize"),
        replace(letter_of().message, body=b"{"),
        replace(letter_of().message, body=b"7"),
    ],
)
def test_what_holds_no_json_arguments_cannot_be_edited(message):
    site = Site()
    site.file(letter_of(message=message))
    assert isinstance(site.draft({"total": 4}), Refusal)
    assert isinstance(edit.with_data(letter_of(message=message), 1), Refusal)


def test_a_hidden_change_is_told_beside_one_that_is_seen():
    protect = protection()
    site = Site(protect, Clearance(cipher=CIPHER))
    site.file(protect(secret_letter()))
    changes = site.draft({"user": "bob", "password": "swordfish"}).changes
    assert [one.after for one in changes] == ['"bob"', UNSEEN]
    assert len(site.draft({"user": "bob", "password": MARK}).changes) == 1


def test_a_pointer_is_told_no_longer_than_a_value():
    (found,) = differences({"x" * 9999: 1}, {"x" * 9999: 2})
    assert len(found.pointer) <= 200


def told(before, after):
    return [str(one) for one in differences(before, after)]


def test_an_item_that_is_put_into_a_list_is_the_only_difference():
    lines = [{"sku": f"A-{number:04}", "qty": 1} for number in range(20)]
    evil = {"sku": "EVIL", "qty": 100_000}
    for at in (0, 7, 20):
        found = told({"lines": lines}, {"lines": [*lines[:at], evil, *lines[at:]]})
        assert found == [f'/lines/{at}: nothing → {{"sku": "EVIL", "qty": 100000}}']
    assert told([1, 2, 3, 4], [1, 9, 4]) == ["/1: 2 → 9", "/2: 3 → nothing"]


def test_a_long_value_is_cut_around_what_differs():
    (found,) = differences("x" * 300 + "pay 1 EUR", "x" * 300 + "pay 9999 EUR")
    assert ("pay 1 EUR" in found.before, "pay 9999 EUR" in found.after) == (True, True)
    assert is_cut([found])
    assert not is_cut(differences(["…"], ["a…"]))
    assert is_cut(differences([0] * 500, [1] * 500))


@given(json_values, json_values, st.integers(0, 500))
def test_what_differs_never_looks_the_same(before, after, length):
    for one in differences({"a": [before, "x" * length]}, {"a": [after, "x" * 250]}):
        assert one.before != one.after
        assert max(map(len, one)) < 210
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert (differences(before, after) == []) == same


def test_a_hidden_change_behind_many_others_is_told():
    before = {str(number): 0 for number in range(300)}
    after = dict.fromkeys(before, 1)
    wholes = before | {"z": {"pin": 1}}, after | {"z": {"pin": 2}}
    seen = seen_differences(before | {"z": {"pin": MARK}}, after | {"z": {"pin": MARK}}, *wholes)
    assert seen[-1].after == UNSEEN
    visible = seen_differences(before, after, before, after)
    assert visible[-1].after == "more changes"
