"""The figures by key, in the order in which the report shows them."""

from __future__ import annotations

from figures import claims, imports, throughput

FIGURES = {
    figure.key: figure for figure in (*throughput.FIGURES, *claims.FIGURES, *imports.FIGURES)
}
