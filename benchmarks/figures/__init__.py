"""The figures by key, in the order in which the report shows them."""

from __future__ import annotations

from figures import (
    analysis,
    breaker_admit,
    chaos,
    chart,
    claims,
    classification,
    commands,
    delay_lateness,
    delayed_memory,
    dependency_outage,
    give_back,
    half_open,
    imports,
    kill_loss,
    ledger_pages,
    letter_kills,
    letters,
    outages,
    projections,
    publishing,
    rebuilds,
    replays,
    sagas,
    shutdown,
    throughput,
    transport,
)

FIGURES = {
    figure.key: figure
    for figure in (
        *chaos.FIGURES,
        *kill_loss.FIGURES,
        *give_back.FIGURES,
        *shutdown.FIGURES,
        *outages.FIGURES,
        *throughput.FIGURES,
        *transport.FIGURES,
        *publishing.FIGURES,
        *commands.FIGURES,
        *delay_lateness.FIGURES,
        *delayed_memory.FIGURES,
        *claims.FIGURES,
        *breaker_admit.FIGURES,
        *letters.FIGURES,
        *letter_kills.FIGURES,
        *analysis.FIGURES,
        *classification.FIGURES,
        *ledger_pages.FIGURES,
        *replays.FIGURES,
        *sagas.FIGURES,
        *projections.FIGURES,
        *rebuilds.FIGURES,
        *half_open.FIGURES,
        *dependency_outage.FIGURES,
        *imports.FIGURES,
        *chart.FIGURES,
    )
}
