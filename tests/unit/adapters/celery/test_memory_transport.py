from __future__ import annotations

from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.memory_transport import forget_broker, memory_broker


def put(url, queue):
    with AngzarrConnection(url) as connection:
        connection.SimpleQueue(queue).put({"n": 1})


def test_brokers_of_two_names_share_no_queue(unique_name):
    put(f"memory://{unique_name}-a", "q")
    assert memory_broker(f"{unique_name}-a").waiting() == 1
    assert memory_broker(f"{unique_name}-b").waiting() == 0
    forget_broker(f"{unique_name}-a")
    assert memory_broker(f"{unique_name}-a").waiting() == 0


def test_connections_to_one_name_share_its_queues(unique_name):
    put(f"memory://{unique_name}", "q")
    with AngzarrConnection(f"memory://{unique_name}") as connection:
        message = connection.SimpleQueue("q").get(timeout=60)
        assert message.payload == {"n": 1}
        message.ack()
    forget_broker(unique_name)


def test_a_broker_without_a_name_is_one_as_well(unique_name):
    put("memory://", unique_name)
    with AngzarrConnection("memory://localhost") as connection:
        connection.SimpleQueue(unique_name).get(timeout=60).ack()
