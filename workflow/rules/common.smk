"""Reads params.yaml and dvc.yaml once, and stops here with every mistake in them. No rules, no science."""

import os
import sys

from depthtime.config import load_params
from depthtime.errors import DepthtimeError
from depthtime.interlock import recording
from depthtime.interlock.rules import Plan, count_gpus, total_memory_mb

if config:
    sys.exit(
        f"--config {' '.join(f'{key}={value}' for key, value in config.items())}: not read here, so that the record "
        "of a run is complete; edit params.yaml instead"
    )

# commands find the programs beside the Python that runs Snakemake, also where .venv was not activated
os.environ.update(PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]))

try:
    STUDY = load_params()
    FRESHNESS = recording.read_freshness()
except DepthtimeError as error:
    sys.exit(str(error))

PLAN = Plan(FRESHNESS.stages, FRESHNESS, ancient=ancient, directory=directory)
PLAN.is_writer = workflow.is_main_process
RULES = list(PLAN.stages.patterns)
TRAINING = {f"train_{group}": group for group in STUDY.groups if f"train_{group}" in RULES}
DATA = [rule for rule in RULES if rule in ("fetch", "prepare", "ngram")]
REPORT = [rule for rule in RULES if rule == "report"]
EVALUATION = [rule for rule in RULES if rule not in {*DATA, *TRAINING, *REPORT}]

GPUS = count_gpus()
for name, amount in {"gpu": GPUS, "mem_mb": total_memory_mb()}.items():
    if amount and name not in workflow.global_resources:
        workflow.register_resource(name, amount)  # internal; snakemake is pinned


def inputs(rule):
    """Input function of a rule; asked while the graph is built, when Snakemake knows what is forced."""
    of = PLAN.inputs(rule)

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
        PLAN.force(RULES)
    elif settings.forcerun or settings.forcetargets:
        PLAN.force([*settings.forcerun, *(settings.targets if settings.forcetargets else ())])


def everything(wildcards):
    """All outputs. Before a real run, first records what an earlier, killed one has finished."""
    if workflow.executor_plugin is not None and not workflow.dryrun and not workflow.touch:
        unrecorded = [at for at in PLAN.stages if FRESHNESS.is_settled(at) and not FRESHNESS.is_recorded(at)]
        if unrecorded and workflow.is_main_process:
            recording.record_after_run()
    return PLAN.targets(RULES)


def of_group(group):
    """The outputs of a group: its runs, its selection, its analysis."""
    return PLAN.targets(rule for rule in RULES if rule.partition("_")[2] == group)


def memory_mb(rule):
    return 4000 if rule in TRAINING else 2000


def gpu_share(rule):
    """A training or a bench takes one GPU, where there are any; else they would wait for each other in vain."""
    return {"gpu": 1} if GPUS and (rule in TRAINING or rule == "bench") else {}


def threads_of(rule):
    """Training: what params.yaml says. The bench takes the whole machine, so that it runs alone."""
    if rule in TRAINING:
        return STUDY.groups[TRAINING[rule]].train.threads
    return (lambda wildcards: workflow.cores) if rule == "bench" else 1


def refuse_beside_dvc():
    command = recording.running_dvc()
    if command:
        sys.exit(f"`{command}` is running stages in this folder; wait for it to end, then run `snakemake` again")
