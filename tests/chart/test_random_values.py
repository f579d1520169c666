"""Whatever the schema takes is a release that the API server takes, or is refused by a sentence."""

from __future__ import annotations

import copy
import re
from random import Random

import pytest

from chart.api_rules import broken_rules
from chart.random_values import draw
from chart.rendering import SETS, Refused, pool, render, rendered, values_of
from chart.schemas import minors, problems


def merged(values, changes):
    """Return *values* with *changes*, maps put together as Helm does."""
    made = copy.deepcopy(values)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = merged(made[key], value) if both else value
    return made


@pytest.mark.parametrize("seed", range(25))
def test_values_that_fit_the_schema_make_a_release_or_one_sentence(seed):
    chance = Random(seed)
    name = chance.choice(SETS)
    changes = draw(chance, chance.randint(1, 6))
    try:
        chart = render(merged(values_of(name), changes))
    except Refused as refused:
        told = str(refused)
        said = re.search(r"execution error at \([^)]*\): (.*)", told)
        assert said or "don't meet the specifications of the schema" in told, (changes, told)
        return
    wrong = [line for one in chart.objects for line in problems(one, minors()[-1])]
    assert wrong + broken_rules(chart) == [], (name, changes)


@pytest.mark.parametrize("name", SETS)
def test_no_set_breaks_a_rule_of_the_api_server(name):
    assert broken_rules(rendered(name)) == []


def test_a_rule_that_is_broken_is_found():
    chart = copy.deepcopy(rendered("keda-redis"))
    (maker, *_) = chart.all("Deployment")
    maker["spec"]["minReadySeconds"] = 600
    container = maker["spec"]["template"]["spec"]["containers"][0]
    container["env"].append(container["env"][0])
    container["volumeMounts"].append(container["volumeMounts"][0])
    maker["metadata"]["labels"]["team"] = "the shop"
    chart.one("ScaledObject", "worker-default")["spec"]["triggers"][0]["name"] = "my-cron"
    told = "\n".join(broken_rules(chart))
    for part in ("ready too late", "a variable twice", "a path twice", "'the shop'", "trigger's"):
        assert part in told


def test_most_of_what_is_drawn_is_rendered():
    """A test of refusals alone would say nothing of manifests."""
    made = 0
    for seed in range(20):
        values = merged(values_of("minimal"), draw(Random(seed), 1) | {"pools": pool()})
        try:
            made += bool(render(values).objects)
        except Refused:
            continue
    assert made >= 10
