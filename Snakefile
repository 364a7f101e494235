"""The study as a graph: `snakemake` runs all of it, `snakemake core` one group, `snakemake -n` says what would run.

The stages are those of dvc.yaml; `dvc repro` runs the same commands. A stage runs when its command, files or
parameters differ from what was recorded, whatever the file times; what has finished is recorded in dvc.lock.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "src"))


include: "workflow/rules/common.smk"


onstart:
    refuse_beside_dvc()


onsuccess:
    recording.record_after_run()


onerror:
    recording.record_after_run()


rule all:
    default_target: True
    input:
        results_of(STAGES),


include: "workflow/rules/targets.smk"
include: "workflow/rules/stages.smk"
