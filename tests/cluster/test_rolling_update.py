"""A pool under load: rolled out, rolled back, killed and evicted, it loses nothing.

What a roll-out costs is measured.
"""

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
#: Of each pod, as rolling/values.yaml says.
SLOTS = 8
POOL = "deployment/rolling-angzarr-worker-default"
PODS = "kubectl get pods -l angzarr.io/pool=default -o jsonpath='{.items[*].metadata.name}'"
POD_PATH = "/api/v1/namespaces/default/pods"
RESTARTED = ".status.containerStatuses[0].lastState.terminated.exitCode"
#: Run in the container of a worker, whose image has no `kill`; tini is 1 and the worker its child.
_KILL = (
    'import glob, os; of = lambda pid: [int(path.split("/")[2]) for path in'
    ' glob.glob("/proc/[0-9]*/stat") if open(path).read().split(")")[-1].split()[1] == str(pid)];'
    " worker, = of(1); os.kill({}, 9)"
)
KILL_THE_WORKER = _KILL.format("worker")
KILL_A_CHILD = _KILL.format("of(worker)[0]")


@pytest.fixture(scope="module")
def shell(commands) -> Iterator[Shell]:
    """A shell beside a pool of three that is busy from the first test to the last."""
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
    image = "--image=rolling:1 --restart=Never"
    shell.run(f"kubectl run publisher {image} --overrides='{publisher()}'")
    shell.run_until(redis("llen counted"), lambda said: int(said) >= 10 * RATE)
    yield shell
    shell.run("kubectl delete pod publisher --wait --grace-period=1")
    shell.run("helm uninstall rolling --wait")
    shell.run(f"kubectl delete -f {SERVERS} --wait")
    shell.run("kubectl delete secret rolling")


def test_a_roll_out_under_load_loses_nothing_and_runs_nothing_twice(shell, record):
    began = now(shell)
    shell.run(upgrade("--set-string image.tag=2 --wait --timeout 5m"))
    ended = now(shell)
    shell.run_until(
        redis("lrange counted -1 -1"), lambda said: float(said.split()[1]) >= ended + 10
    )
    counted = accounted(shell)
    assert {release for _, _, release in counted} == {"1", "2"}
    moments = [float(moment) for _, moment, _ in counted]
    told = {
        "events": len(counted),
        "roll_out_seconds": ended - began,
        "rate_before": rate(moments, moments[0], began),
        "rate_during": rate(moments, began, ended),
        "lowest_second": lowest(moments, began, ended),
    }
    record(told)


@pytest.mark.parametrize("fault", ["image.tag=missing", "app=missing"])
def test_a_release_that_cannot_start_replaces_no_pod_and_is_rolled_back(shell, fault):
    before = settled(shell)
    refused = shell.try_to(upgrade(f"--set-string {fault} --wait --timeout 15s"))
    assert refused.returncode != 0
    assert "UPGRADE FAILED" in refused.stderr
    assert set(before) < set(shell.run(PODS).split())
    shell.run("helm rollback rolling --wait --timeout 2m")
    shell.run_until(PODS, lambda said: sorted(said.split()) == sorted(before))
    accounted(shell)


def test_workers_that_are_killed_or_evicted_lose_nothing(shell):
    first, second, third = settled(shell)
    shell.run(f"kubectl exec {first} -c worker -- python -c '{KILL_A_CHILD}'")
    shell.run(f"kubectl exec {second} -c worker -- python -c '{KILL_THE_WORKER}'")
    shell.run_until(f"kubectl get pod {second} -o jsonpath={{{RESTARTED}}}", "137".__eq__)
    shell.run(f"kubectl wait --for=condition=Ready pod/{second} --timeout=2m")
    shell.run(f"kubectl create --raw {POD_PATH}/{third}/eviction -f - <<<'{eviction(third)}'")
    assert third not in settled(shell)
    accounted(shell, repeated=1 + SLOTS)


def settled(shell: Shell) -> list[str]:
    """Return the pods of the pool, once all are available and those that were stopped are gone."""
    shell.run(f"kubectl rollout status {POOL} --timeout=2m")
    return shell.run_until(PODS, lambda said: len(said.split()) == 3).split()


def upgrade(options: str) -> str:
    return f"helm upgrade rolling {CHART} -f {ROLLING}/values.yaml {options}"


def eviction(pod: str) -> str:
    metadata = {"name": pod, "namespace": "default"}
    return json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})


def now(shell: Shell) -> float:
    """Return what the clock of Redis says, which is the machine's."""
    return float(shell.run(redis("time")).split()[0])


def accounted(shell: Shell, repeated: int = 0) -> list[list[str]]:
    """Wait until all that was published by now is handled, and return what was.

    Each once, but for *repeated*: what a kill met between the handler's end and the worker's note.
    """
    published = set(shell.run(redis("lrange published 0 -1")).split())
    said = shell.run_until(
        redis("lrange counted 0 -1"),
        lambda said: published <= {line.split()[0] for line in said.splitlines()},
    )
    counted = [line.split() for line in said.splitlines()]
    often = Counter(number for number, _, _ in counted)
    assert sum(times - 1 for times in often.values()) <= repeated, often.most_common(repeated + 1)
    return counted


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
        "args": ["python", "publish.py", str(RATE)],
        "env": environment,
    }
    return json.dumps({"apiVersion": "v1", "spec": {"containers": [container]}})


def rate(moments: list[float], since: float, until: float) -> float:
    return round(sum(since <= at < until for at in moments) / (until - since), 1)


def lowest(moments: list[float], since: float, until: float) -> int:
    """Return how many were handled in the second in which the fewest were."""
    seconds = Counter(int(at) for at in moments)
    return min(seconds[at] for at in range(int(since), int(until)))
