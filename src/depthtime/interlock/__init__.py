"""Snakemake and DVC on one graph: stages read from dvc.yaml, staleness from content, results recorded in dvc.lock."""
