"""Each test begins with empty books: what an app registered holds none of an earlier test's."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from angzarr import Aggregate, Angzarr, ProcessManager, Saga, Send, handles, reacts_to


class Put(BaseModel):
    n: int = 1


class Had(BaseModel):
    n: int = 1


class Copy(BaseModel):
    n: int = 1


class Copied(BaseModel):
    n: int


class Counted(BaseModel):
    n: int


class Sum(BaseModel):
    n: int = 0


app = Angzarr("books", broker="memory://")


@app.aggregate("box")
class Box(Aggregate[Sum]):
    @handles(Put)
    def put(self, command: Put) -> Had:
        return Had(n=self.next_sequence)


@app.aggregate("shelf")
class Shelf(Aggregate[Sum]):
    @handles(Copy)
    def copy(self, command: Copy) -> Copied:
        return Copied(n=self.next_sequence)


@app.saga("copier", source="box")
class Copier(Saga):
    @reacts_to(Had)
    def had(self, event: Had) -> Send:
        return Send(Copy(), domain="shelf", root="r")


@app.process_manager("counter")
class Counter(ProcessManager[Sum]):
    @classmethod
    def root_of(cls, event):
        return "r"

    @reacts_to(Had)
    def had(self, event: Had) -> Counted:
        return Counted(n=self.next_sequence)


@pytest.fixture
def app_under_test():
    return app


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_aggregates_sagas_and_process_managers_begin_anew(angzarr_worker, nth):
    app.send_command(Put(), domain="box", root="r")
    done = angzarr_worker.run_until_settled()
    assert {one.outcome for one in done} == {"handled"}
    for domain in ("box", "shelf", "counter"):
        assert [event.data for event in app.book(domain, "r").events] == [{"n": 0}], domain
