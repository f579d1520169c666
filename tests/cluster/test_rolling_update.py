"""A roll-out under load: nothing is lost, nothing runs twice, and what it costs is measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.conftest import CHECKOUT, Shell

pytestmark = pytest.mark.timeout(1800)
HERE = Path(__file__).resolve().parent
ROLLING = HERE / "rolling"
SERVERS = CHECKOUT / "docs" / "tutorial" / "shop" / "servers.yaml"
CHART = CHECKOUT / "charts" / "angzarr"
#: Events a second: with a tenth of a second each, the slots of one pod are half of it busy.
RATE = 40


@pytest.fixture
def shell(commands, tmp_path) -> Iterator[Shell]:
    shell = Shell(CHECKOUT, commands)
    shell.run("kind create cluster")
    shell.run("docker build -t angzarr-workers .")
    for tag in ("1", "2"):
        shell.run(f"docker build -t rolling:{tag} {ROLLING}")
        shell.run(f"kind load docker-image rolling:{tag}")
    shell.run(f"kubectl apply -f {SERVERS}")
    shell.run("kubectl wait --for=condition=Available deployment --all --timeout=5m")
    shell.run(
        "kubectl create secret generic rolling --from-literal=store=redis://redis:6379/0"
        " --from-literal=broker=amqp://shop:try-it@rabbitmq:5672//"
    )
    shell.run(f"helm install rolling {CHART} -f {ROLLING}/values.yaml --wait --timeout 5m")
    yield shell
    shell.run("helm uninstall rolling --wait")
    shell.run(f"kubectl delete -f {SERVERS} --wait")
    shell.run("kubectl delete secret rolling")


def test_a_roll_out_under_load_loses_nothing_and_runs_nothing_twice(shell, record):
    image = "--image=rolling:1 --restart=Never"
    shell.run(f"kubectl run publisher {image} --overrides='{publisher()}'")
    enough = 10 * RATE
    shell.run_until(redis("llen counted"), lambda said: int(said) >= enough)
    began = float(shell.run(redis("time")).split()[0])
    upgraded = f"-f {ROLLING}/values.yaml --set-string image.tag=2 --wait --timeout 5m"
    shell.run(f"helm upgrade rolling {CHART} {upgraded}")
    ended = float(shell.run(redis("time")).split()[0])
    shell.run_until(
        redis("lrange counted -1 -1"), lambda said: float(said.split()[1]) >= ended + 10
    )
    shell.run("kubectl exec publisher -- touch /tmp/stop")
    shell.run("kubectl wait --for=jsonpath={.status.phase}=Succeeded pod/publisher --timeout=60s")
    published = shell.run(redis("lrange published 0 -1")).split()
    shell.run_until(redis("llen counted"), lambda said: int(said) >= len(published))
    counted = [line.split() for line in shell.run(redis("lrange counted 0 -1")).splitlines()]
    times = Counter(number for number, _, _ in counted)
    assert sorted(times) == sorted(published)
    assert [number for number, often in times.items() if often > 1] == []
    assert {release for _, _, release in counted} == {"1", "2"}
    moments = [float(moment) for _, moment, _ in counted]
    told = {
        "events": len(published),
        "roll_out_seconds": ended - began,
        "rate_before": rate(moments, moments[0], began),
        "rate_during": rate(moments, began, ended),
        "lowest_second": lowest(moments, began, ended),
    }
    record(told)
    shell.run("kubectl delete pod publisher --wait")


def redis(asked: str) -> str:
    return f"kubectl exec deploy/redis -- redis-cli {asked}"


def publisher() -> str:
    secret = {"CELERY_BROKER_URL": "broker", "ANGZARR_STORE": "store"}
    environment = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": "rolling", "key": key}}}
        for name, key in secret.items()
    ]
    container = {
        "name": "publisher",
        "image": "rolling:1",
        "args": ["python", "publish.py", str(RATE), "/tmp/stop"],  # noqa: S108 - its container's
        "env": environment,
    }
    return json.dumps({"apiVersion": "v1", "spec": {"containers": [container]}})


def rate(moments: list[float], since: float, until: float) -> float:
    return round(sum(since <= at < until for at in moments) / (until - since), 1)


def lowest(moments: list[float], since: float, until: float) -> int:
    """Return how many were handled in the second in which the fewest were."""
    seconds = Counter(int(at) for at in moments)
    return min(seconds[at] for at in range(int(since), int(until)))
