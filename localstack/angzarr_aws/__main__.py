"""python localstack/angzarr_aws --help."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from angzarr_aws.command import main

sys.exit(main())
