"""The figures by key, in the order in which the report shows them."""

from __future__ import annotations

from figures import (
    claims,
    commands,
    delayed_memory,
    give_back,
    imports,
    kill_loss,
    publishing,
    shutdown,
    throughput,
    transport,
)

FIGURES = {
    figure.key: figure
    for figure in (
        *kill_loss.FIGURES,
        *give_back.FIGURES,
        *shutdown.FIGURES,
        *throughput.FIGURES,
        *transport.FIGURES,
        *publishing.FIGURES,
        *commands.FIGURES,
        *delayed_memory.FIGURES,
        *claims.FIGURES,
        *imports.FIGURES,
    )
}
