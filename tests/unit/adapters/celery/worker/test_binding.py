"""Binding: from a function as people write it to the call of one delivery."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery.exceptions import Reject
from pydantic import BaseModel

from angzarr.adapters.celery.worker.binding import event_binding, event_decoder, task_binding
from angzarr.delivery.context import Context
from angzarr.errors import ConfigurationError, DecodeError, GiveUp, RetryLater


def event_of(function, declared):
    return event_binding(function, event_decoder(function, declared))


class Placed(BaseModel):
    n: int


def delivery(*args, **kwargs):
    return SimpleNamespace(args=args, kwargs=kwargs)


def run(function, declared=Placed, data=None, context="context"):
    return event_of(function, declared)(delivery(data or {"n": 5}), context)()


def typed(event: Placed):
    return event


def typed_with_context(event: Placed, ctx: Context):
    return event, ctx


def untyped(event):
    return event


def as_dict(event: dict):
    return event


def with_default(event, ctx=None):
    return event, ctx


@pytest.mark.parametrize("function", [typed, untyped])
def test_the_event_comes_decoded(function):
    assert run(function) == Placed(n=5)


def test_an_annotation_of_the_functions_own_wins():
    assert run(as_dict) == {"n": 5}
    assert run(typed, declared="order.placed") == Placed(n=5)
    assert run(untyped, declared="order.placed") == {"n": 5}


@pytest.mark.parametrize("function", [typed_with_context, with_default])
def test_the_context_comes_second_if_it_is_asked_for(function):
    assert run(function) == (Placed(n=5), "context")


def test_a_method_and_a_callable_object_are_handlers_too():
    class Service:
        def handle(self, event: Placed):
            return event

        def __call__(self, event: Placed):
            return event

    assert run(Service().handle) == Placed(n=5)


def test_nothing_is_called_before_the_claim():
    def never(event: Placed):
        pytest.fail("called while it was bound")

    event_of(never, Placed)(delivery({"n": 5}), None)


@pytest.mark.parametrize(
    "sent",
    [delivery(), delivery({"n": 5}, {"n": 6}), delivery({"n": 5}, key=1), delivery({"n": "x"})],
)
def test_what_is_no_event_is_an_error_before_the_claim(sent):
    with pytest.raises(DecodeError):
        event_of(typed, Placed)(sent, None)


@pytest.mark.parametrize("function", [lambda: None, lambda a, b, c: None, lambda *, event: None])
def test_a_function_that_could_never_be_called_is_refused(function):
    with pytest.raises(ConfigurationError, match=r"\(event, ctx\)"):
        event_of(function, Placed)


def test_an_annotation_that_cannot_be_read_is_refused_unless_the_type_is_declared():
    def lost(event: Gone):  # noqa: F821 - meant
        return event

    assert run(lost) == Placed(n=5)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        event_of(lost, "order.placed")


# -- plain tasks --------------------------------------------------------------------------------


@pytest.fixture
def bound(app):
    def bind(function, *args, **kwargs):
        task = app.task(name=function.__name__, lazy=False)(function)
        return task_binding(task)(delivery(*args, **kwargs), None)

    return bind


def test_a_plain_task_gets_its_arguments_as_they_were_sent(bound):
    def add(a, b=1, *, c=0):
        return a, b, c

    assert bound(add, 1, 2, c=3)() == (1, 2, 3)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"gone": 1})])
def test_arguments_that_never_fit_are_an_error_before_the_claim(bound, args, kwargs):
    def add(a, b=1):
        pytest.fail("called")

    with pytest.raises(DecodeError, match="do not fit add"):
        bound(add, *args, **kwargs)


@pytest.mark.parametrize(("requeue", "said"), [(True, RetryLater), (False, GiveUp)])
def test_a_reject_is_an_outcome_of_ours(bound, requeue, said):
    def reject():
        raise Reject("why", requeue=requeue)

    with pytest.raises(said, match="rejected"):
        bound(reject)()


def test_a_type_error_inside_a_task_is_its_own_bug_and_no_bad_message(bound):
    def buggy():
        return 1 + "x"

    with pytest.raises(TypeError):
        bound(buggy)()
