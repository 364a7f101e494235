"""depthtime: language models whose depth is continuous, re-run and judged end to end."""

__version__ = "0.1.0"
