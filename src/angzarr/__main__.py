"""python -m angzarr: the same as the angzarr command."""

from __future__ import annotations

from angzarr.cli.main import main

if __name__ == "__main__":
    main()
