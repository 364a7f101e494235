"""Reads params.yaml and dvc.yaml once, and stops with every mistake in them at once.

Holds what Snakemake adds to a stage of dvc.yaml: threads, memory, GPU, caption. No science.
"""

import os
import sys
from pathlib import Path

from depthtime.config import load_params
from depthtime.errors import DepthtimeError
from depthtime.interlock import recording
from depthtime.interlock.gpus import visible_gpus
from depthtime.interlock.rules import Plan, total_memory_mb

if config:
    given = " ".join(f"{key}={value}" for key, value in config.items())
    sys.exit(
        f"--config {given}: not read here; edit params.yaml, which is recorded with the results"
    )

# commands find the programs beside the Python that runs Snakemake, also where .venv was not activated
tools = str(Path(sys.executable).parent)
os.environ.update(PATH=os.pathsep.join([tools, os.environ.get("PATH", os.defpath)]))

try:
    STUDY = load_params()
    FRESHNESS = recording.read_freshness()
except DepthtimeError as error:
    sys.exit(str(error))

PLAN = Plan(FRESHNESS.stages, FRESHNESS, ancient=ancient, directory=directory)
PLAN.is_writer = workflow.is_main_process
STAGES = list(PLAN.stages.patterns)
TRAINING = {f"train_{group}": row.train for group, row in STUDY.groups.items()}
TIMING = {"bench", "gradients", "decoding"}  # they measure time, so each runs alone
ON_DEVICE = {*TRAINING, "bench"}  # the others measure on the CPU

GPUS = len(visible_gpus())
for resource, amount in {"gpu": GPUS, "mem_mb": total_memory_mb()}.items():
    if amount and resource not in workflow.global_resources:
        workflow.register_resource(resource, amount)  # internal; snakemake is pinned


def inputs(stage):
    """Input function of a stage; asked while the graph is built, when Snakemake knows what is forced."""
    of = PLAN.inputs(stage)

    def after_forcing(wildcards):
        learn_forced()
        return of(wildcards)

    return after_forcing


def learn_forced():
    """Tell the plan what -R, -f or -F force (internal settings of the pinned Snakemake)."""
    settings = workflow.dag_settings
    if settings is None or PLAN.forced:
        return
    if settings.forceall:
        PLAN.force(STAGES)
    else:
        PLAN.force(
            [*settings.forcerun, *(settings.targets if settings.forcetargets else ())]
        )


def results_of(stages):
    """Input function of a target: the results of these stages. A real run first records what a killed one finished."""

    def of(wildcards):
        is_run = workflow.executor_plugin and not workflow.dryrun and not workflow.touch
        if is_run and workflow.is_main_process and FRESHNESS.unrecorded():
            recording.record_after_run()
        return PLAN.targets(stages)

    return of


def stages_of(*groups):
    """The stages of groups: their runs, selections, analyses."""
    return [stage for stage in STAGES if stage.partition("_")[2] in groups]


def outputs(stage):
    """Outputs, with a caption in `snakemake --report` where workflow/report has one."""
    return [with_caption(out) for out in PLAN.outputs(stage)]


def with_caption(out):
    caption = Path(workflow.basedir) / "workflow/report" / f"{Path(out).stem}.rst"
    if not caption.exists() or Path(out).suffix == ".csv":
        return out
    captioned = report(out, caption=str(caption), category=Path(out).parent.name)
    return captioned


def threads_of(stage):
    """Training: what params.yaml says. What measures time takes all cores, so that it runs alone."""
    if stage in TRAINING:
        return TRAINING[stage].threads
    return (lambda wildcards: workflow.cores) if stage in TIMING else 1


def memory_mb(stage):
    return {"gradients": 6000}.get(
        stage,
        (
            2000
            if stage in {*ON_DEVICE, "solver_swap", "decoding", "sensitivity"}
            else 1000
        ),
    )


def gpu_share(stage):
    """One GPU each, where there are any; without them the resource would only make jobs wait."""
    is_on_cpu = stage in TRAINING and TRAINING[stage].device not in ("auto", "cuda")
    return {"gpu": 1} if GPUS and stage in ON_DEVICE and not is_on_cpu else {}


def refuse_beside_dvc():
    command = recording.running_dvc()
    if command:
        sys.exit(
            f"`{command}` runs stages in this folder; wait until it ends, then run `snakemake` again"
        )
