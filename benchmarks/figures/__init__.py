"""The figures by key, in the order in which the report shows them."""

from __future__ import annotations

from figures import (
    chaos,
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
        *chaos.FIGURES,
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
