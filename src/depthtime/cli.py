"""The command line: parses arguments, loads params.yaml, calls one function, leaves the stage's receipt and log.

Heavy imports (torch, mlflow, matplotlib) happen inside the verb that needs them, so that help is instant.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from depthtime import paths
from depthtime.config import run_address
from depthtime.errors import ConfigError, DepthtimeError
from depthtime.interlock.gpus import one_gpu
from depthtime.progress import ScreenHandler, console, counting, logger
from depthtime.stage_log import running_stage

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Re-run, check and extend a study of language models with continuous depth.

    Most people type `snakemake` (rerun what changed) or `dvc repro`, which call the verbs below stage by
    stage; each verb also works by hand. Numbers come from params.yaml, results go to results/.""",
    epilog="Start: `depthtime check`, then `snakemake --cores 2 core`. Each verb has --help with an example.",
)
runs_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Published runs: list, compare again, adopt after a refactoring, record, import into MLflow.",
)
app.add_typer(runs_app, name="runs", rich_help_panel="For people")

STAGES, PEOPLE = "Stages (what Snakemake and DVC call)", "For people"
GroupName = Annotated[str, typer.Argument(help="A group of params.yaml, such as core.")]
RunName = Annotated[str, typer.Argument(help="A row of that group, such as ode.")]
Seed = Annotated[int, typer.Argument(help="One of the group's seeds, such as 42.")]


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime fetch ptb   (PTB_DIR=/my/ptb depthtime fetch ptb)")
def fetch(corpus: Annotated[str, typer.Argument(help="A corpus of params.yaml, such as ptb.")]) -> None:
    """Find a corpus, check its sha256, and write its card.

    Looks in data/, then in PTB_DIR or corpora.NAME.local_dir, then at the mirrors of params.yaml. The text stays in a
    local cache and is never part of the results.
    """
    with running_stage("fetch", corpus) as study:
        from depthtime.data.corpus import fetch as run

        run(study, corpus)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime prepare ptb_continuumlm")
def prepare(dataset: Annotated[str, typer.Argument(help="A dataset of params.yaml, such as ptb_continuumlm.")]) -> None:
    """Build vocabulary, split and token arrays of a dataset, and write its card."""
    with running_stage("prepare", dataset) as study:
        from depthtime.data.prepare import prepare as run

        run(study, dataset)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime ngram ptb_continuumlm")
def ngram(dataset: Annotated[str, typer.Argument(help="A dataset of params.yaml, such as ptb_continuumlm.")]) -> None:
    """Score the n-gram references on exactly the tokens that the networks are scored on."""
    with running_stage("ngram", dataset) as study:
        from depthtime.evaluate.references import score_references

        score_references(study, dataset)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime train core ode 42")
def train(
    group: GroupName,
    run: RunName,
    seed: Seed,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 when the run diverges.")] = False,
) -> None:
    """Train one seed of one run, evaluate it, and write its record.

    Killed or interrupted, the same command goes on from its last checkpoint and ends with the same bytes. A loss that
    is not finite is a result: the record says `diverged`.
    """
    with running_stage("train", group, run, str(seed)) as study, one_gpu(study.run(group, run).train.device):
        from depthtime.progress import TrainingDisplay
        from depthtime.tracking.observer import tracked
        from depthtime.train.run import forget_state, resolve, train_run

        config = resolve(study, group, run)
        _check_seed(config.group.seeds, group, seed)
        with (
            TrainingDisplay(f"{group}/{run}/{seed}", config.train.max_steps) as display,
            tracked(config, seed) as tracker,
        ):
            record = train_run(study, group, run, seed, observers=(display, tracker))
            tracker.finish(record)
    forget_state(config, seed)  # only now: a kill before the receipt must not cost the run
    if strict and record["status"] == "diverged":
        raise typer.Exit(3)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime select tuned")
def select(group: GroupName) -> None:
    """Choose the learning rates of a group with `select` by the validation loss of the runs it names."""
    with running_stage("select", group) as study:
        from depthtime.analyse.select import select as run

        run(study, group)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime bench   (on a quiet machine)")
def bench() -> None:
    """Measure step times of the runs in params.yaml, interleaved, and write medians and quartiles."""
    with running_stage("bench") as study, one_gpu("auto"), counting("bench") as moved:
        from depthtime.measure.bench import bench as run

        run(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime gradients   (on a quiet machine)")
def gradients() -> None:
    """Hold the gradients of each method against exact ones, with memory and time, for few to many steps."""
    with running_stage("gradients") as study, counting("gradients") as moved:
        from depthtime.measure.gradients import measure_gradients

        measure_gradients(study, moved)


@app.command("solver_swap", rich_help_panel=STAGES, epilog="Example: depthtime solver_swap")
def solver_swap() -> None:
    """Score trained weights under other solvers, and measure what adaptive ones let later words change."""
    with running_stage("solver_swap") as study, counting("solvers") as moved:
        from depthtime.measure.solver_swap import measure_solver_swap

        measure_solver_swap(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime decoding   (on a quiet machine)")
def decoding() -> None:
    """Hold cached decoding against full recomputation: logits over random splits, and times after long prefixes."""
    with running_stage("decoding") as study, counting("decoding") as moved:
        from depthtime.measure.decoding import measure_decoding

        measure_decoding(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime clustering")
def clustering() -> None:
    """Let attention alone move tokens, with weights shared over depth and with others, and count their clusters."""
    with running_stage("clustering") as study, counting("clustering") as moved:
        from depthtime.measure.clustering import measure_clustering

        measure_clustering(study, moved)


@app.command("trained_clustering", rich_help_panel=STAGES, epilog="Example: depthtime trained_clustering")
def trained_clustering() -> None:
    """Let trained weights move random words, all of the layer and parts of it, and see whether they draw together."""
    with running_stage("trained_clustering") as study, counting("fields") as moved:
        from depthtime.measure.trained_clustering import measure_trained_clustering

        measure_trained_clustering(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime spectra")
def spectra() -> None:
    """Eigenvalues of trained weights over depth time, of queries with keys, values with outputs, and feed-forward."""
    with running_stage("spectra") as study, counting("spectra") as moved:
        from depthtime.measure.spectra import measure_spectra

        measure_spectra(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime sensitivity")
def sensitivity() -> None:
    """Score the words of our own sentences by Lyapunov exponents over depth, and by common measures of importance."""
    with running_stage("sensitivity") as study, counting("sentences") as moved:
        from depthtime.measure.sensitivity import measure_sensitivity

        measure_sensitivity(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime downstream")
def downstream() -> None:
    """Ask trained models for the last words of held-out sentences, and which sentence of a minimal pair is right."""
    with running_stage("downstream") as study, counting("downstream") as moved:
        from depthtime.measure.downstream import measure_downstream

        measure_downstream(study, moved)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime analyse core")
def analyse(group: GroupName) -> None:
    """Means, intervals and paired differences over the seeds of a group."""
    with running_stage("analyse", group) as study:
        from depthtime.analyse.aggregate import analyse as run

        run(study, group)


@app.command(rich_help_panel=STAGES, epilog="Example: depthtime report; depthtime report --readme README.md")
def report(
    readme: Annotated[
        Path | None, typer.Option(help="Instead, put today's numbers between this file's markers.")
    ] = None,
) -> None:
    """Write every table and figure from records; with --readme, insert numbers into a text."""
    from depthtime.report.figures import write_figures
    from depthtime.report.readme import insert_numbers
    from depthtime.report.sensitivity_page import write_page
    from depthtime.report.tables import write_tables

    if readme is not None:
        from depthtime.config import load_params

        start = Path.cwd()
        paths.enter_root()
        changed = insert_numbers(load_params(), (start / readme).resolve())
        print(f"{readme}: {'updated' if changed else 'already up to date'}")
        return
    with running_stage("report") as study:
        write_tables(study)
        write_figures(study)
        write_page(study)


@app.command(rich_help_panel=PEOPLE, epilog="Example: depthtime check")
def check() -> None:
    """Read params.yaml, dvc.yaml and claims.yaml, and list every mistake at once."""
    from depthtime.claims import load_claims
    from depthtime.config import load_params
    from depthtime.interlock.stages import read_stages

    paths.enter_root()
    problems: list[str] = []
    told: list[str] = []
    for file, read in (
        ("params.yaml", lambda: f"{len(list(load_params().all_runs()))} runs"),
        ("dvc.yaml", lambda: f"{len(read_stages())} stages"),
        ("claims.yaml", lambda: f"{len(load_claims(Path('claims.yaml')).claims)} claims"),
    ):
        try:
            told += [f"{file}: {read()}"] if Path(file).exists() else []
        except DepthtimeError as error:
            problems += str(error).splitlines()
    if problems:
        raise ConfigError(problems)
    print("well-formed: " + "; ".join(told))


@app.command(rich_help_panel=PEOPLE, epilog="Example: depthtime evaluate core/ode/42")
def evaluate(
    name: Annotated[str, typer.Argument(help="group/run/seed of a run whose weights are stored.")],
    weights: Annotated[Path | None, typer.Option(help="Another weights file (safetensors) of the same shape.")] = None,
) -> None:
    """Score stored weights again on their validation part, and compare with the record."""
    from depthtime.config import load_params
    from depthtime.upkeep import evaluate_run

    start = Path.cwd()
    paths.enter_root()
    group, run, seed = run_address(name)
    path = (start / weights).resolve() if weights else None
    for line in evaluate_run(load_params(), group, run, seed, path):
        print(line)


@app.command(
    rich_help_panel=PEOPLE,
    epilog="Example: depthtime generate core/ode/42 --prompt 'the company said' --max-words 40 "
    "--temperature 0.8 --top-k 50 --top-p 0.9 --seed 0",
)
def generate(
    name: Annotated[str, typer.Argument(help="group/run/seed; with --weights, the row that tells their model.")],
    prompt: Annotated[str, typer.Option(help="Words to go on from, split at white space, case kept.")] = "",
    max_words: Annotated[int, typer.Option(min=1, help="Words to add to the prompt, at most.")] = 100,
    temperature: Annotated[float, typer.Option(min=0, help="Below 1 safer, above 1 wilder; 0: the likeliest.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw among the k likeliest words; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0, max=1, help="Then among the fewest with this much probability; 0 or 1: all.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="One seed, one text.")] = 0,
    samples: Annotated[int, typer.Option(min=1, help="Texts from the same prompt, a line each.")] = 1,
    stop: Annotated[list[str] | None, typer.Option(help="End before this word, such as `<eos>`; repeatable.")] = None,
    no_unknown: Annotated[bool, typer.Option("--no-unknown", help="Never draw UNK or `<unk>`.")] = False,
    weights: Annotated[Path | None, typer.Option(help="Another weights file (safetensors) of the same shape.")] = None,
) -> None:
    """Let a trained model go on from a prompt, word by word, on standard output; what it did goes to standard error.

    Needs published weights and vocabulary (`dvc pull`), not the corpus. Words that the model does not know are read as
    its unknown word, and you are told. Runs of the standard protocol start from `<eos>` and may have no prompt; others
    need a word. Text may be longer than the window: when it is full, its second half is read again as the start of a
    new one. Ctrl-C ends it.
    """
    from depthtime.config import load_params
    from depthtime.generate.stream import Options, write_text

    start = Path.cwd()
    paths.enter_root()
    group, run, number = run_address(name)
    options = Options(max_words, temperature, top_k, top_p, seed, samples, tuple(stop or ()), no_unknown)
    path = (start / weights).resolve() if weights else None
    if not write_text(load_params(), group, run, number, prompt, options, sys.stdout, path):
        raise typer.Exit(130)


@app.command(
    rich_help_panel=PEOPLE, epilog="Example: depthtime harness gpt_form/diffeq/43 --tasks my_task.yaml --lower"
)
def harness(
    name: Annotated[str, typer.Argument(help="group/run/seed of a run whose weights are stored.")],
    tasks: Annotated[Path, typer.Option(help="A task of lm-evaluation-harness (YAML), or a folder of them.")],
    lower: Annotated[bool, typer.Option("--lower", help="Put text into lower case, as the Penn Treebank is.")] = False,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="Examples before each question. Default: as told.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many questions of each task.")] = None,
) -> None:
    """Ask a trained model the tasks of lm-evaluation-harness, from local files; results as JSON on standard output.

    Needs the extra `harness` (in the repository: pip install -e ".[harness]"). Text is split at white space into words,
    and words that the model does not know are read as its unknown word; how many there were is part of the result.
    """
    import json

    from depthtime.config import load_params

    try:
        from depthtime.generate.harness import HarnessLM, evaluate_tasks
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("lm_eval"):
            raise
        fix = "install the extra: pip install -e '.[harness]' in the repository (or pip install lm_eval)"
        raise DepthtimeError(f"depthtime harness needs lm-evaluation-harness, which is not installed; {fix}") from None
    start = Path.cwd()
    paths.enter_root()
    group, run, seed = run_address(name)
    model = HarnessLM(load_params(), group, run, seed, lower=lower)
    found = evaluate_tasks(model, (start / tasks).resolve(), num_fewshot=num_fewshot, limit=limit)
    share = 100 * found["unknown_words"] / max(1, found["words"])
    logger.info("%s", f"{found['words']:,} words read, {share:.1f} % of them unknown to the model")
    print(json.dumps(found, indent=1, sort_keys=True, default=str))


@app.command(rich_help_panel=PEOPLE, epilog="Example: depthtime estimate core variants")
def estimate(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Groups; `variants` is all but core. Default: all.")
    ] = None,
    cores: Annotated[int, typer.Option(help="Trainings side by side.")] = 2,
) -> None:
    """Hours and disk that the runs of a group take, and how much of it still has to run."""
    from depthtime.config import load_params
    from depthtime.upkeep import estimate_lines

    paths.enter_root()
    for line in estimate_lines(load_params(), targets or [], cores):
        print(line)


@app.command(rich_help_panel=PEOPLE, epilog="Example: depthtime presets wikitext_small")
def presets(
    name: Annotated[str | None, typer.Argument(help="A preset of presets/diffeqformer.yaml. Default: all.")] = None,
) -> None:
    """Parameters, memory and operations of the published configurations of DiffEqFormer and its baselines."""
    from depthtime.upkeep import preset_lines

    paths.enter_root()
    for line in preset_lines(name):
        print(line)


@app.command(rich_help_panel=PEOPLE, epilog="Example: depthtime demo   (same as make demo)")
def demo(
    folder: Annotated[Path, typer.Option(help="Where its workspace lies.")] = Path("build/demo"),
    cores: Annotated[str, typer.Option(help="Cores for Snakemake, or `all`.")] = "all",
) -> None:
    """Run the whole graph, small, on text that the installed packages ship: minutes, no network."""
    from depthtime.demo import demo as run

    run(paths.enter_root(), folder, cores)


@runs_app.command("list", epilog="Example: depthtime runs list")
def runs_list() -> None:
    """Every stage with its state: recorded, waiting to be recorded, or stale and why."""
    from depthtime.interlock.recording import read_freshness

    paths.enter_root()
    fresh = read_freshness()
    for address in fresh.stages:
        reasons = fresh.reasons(address)
        state = "stale" if reasons else "recorded" if fresh.is_recorded(address) else "ran, not recorded"
        print(f"{address:40} {state}{': ' + '; '.join(reasons[:2]) if reasons else ''}")


@runs_app.command("record", epilog="Example: depthtime runs record")
def runs_record() -> None:
    """Enter finished stages in dvc.lock (Snakemake does this by itself when it ends)."""
    from depthtime.interlock.recording import record

    paths.enter_root()
    done = record()
    for line in done.lines() or ["dvc.lock is up to date"]:
        print(line)
    if done.refused:
        raise typer.Exit(1)


@runs_app.command("adopt", epilog="Example: depthtime runs adopt   (after a refactoring that changes no number)")
def runs_adopt() -> None:
    """Keep results whose code changed but whose numbers did not.

    Each stale run rehearses 20 steps of its recipe under the present code; when losses and validation agree with its
    record to 1e-6, the record stands. Other stages are computed again and compared. What differs is refused and stays
    stale, with the run and the step.
    """
    from depthtime.config import load_params
    from depthtime.upkeep import adopt

    paths.enter_root()
    with counting("rehearsing") as moved:
        adopted, refused = adopt(load_params(), moved)
    for line in refused:
        print(f"refused: {line}")
    print(f"adopted {len(adopted)} stages" + (f", refused {len(refused)}" if refused else ""))
    if refused:
        raise typer.Exit(1)


@runs_app.command("verify", epilog="Example: depthtime runs verify core/ode/42   (takes as long as the run did)")
def runs_verify(name: Annotated[str, typer.Argument(help="group/run/seed")]) -> None:
    """Train a run again in a scratch folder and compare every number with the published record."""
    from depthtime.config import load_params
    from depthtime.upkeep import verify

    paths.enter_root()
    group, run, seed = run_address(name)
    lines, agrees = verify(load_params(), group, run, seed)
    for line in lines:
        print(line)
    if not agrees:
        raise typer.Exit(1)


@runs_app.command("import", epilog="Example: dvc pull && depthtime runs import && make ui")
def runs_import() -> None:
    """Replay published records into MLflow, so that a fresh clone has every run to browse."""
    from depthtime.config import load_params
    from depthtime.tracking import import_runs

    root = paths.enter_root()
    print(f"imported {import_runs(load_params(), root)} runs into MLflow")


@runs_app.command("publish", epilog="Example: depthtime runs publish && git add store && git commit")
def runs_publish() -> None:
    """Push what dvc.lock refers to into store/, after collecting what nothing refers to; checks the store's size."""
    from depthtime.config import load_params
    from depthtime.upkeep import publish

    paths.enter_root()
    for line in publish(load_params()):
        print(line)


@runs_app.command("ui", epilog="Example: depthtime runs ui --port 5001")
def runs_ui(host: str = "127.0.0.1", port: int = 5000) -> None:
    """Open the MLflow UI on this workspace's runs."""
    from depthtime.tracking import serve_ui

    paths.enter_root()
    serve_ui(host, port)


def _check_seed(seeds: tuple[int, ...], group: str, seed: int) -> None:
    if seed not in seeds:
        raise DepthtimeError(f"params.yaml: groups.{group}.seeds has no {seed}; there are {', '.join(map(str, seeds))}")


def main() -> None:
    """Entry point: user errors in one line, everything else with its traceback."""
    from depthtime.seeding import prepare_environment

    prepare_environment()
    _speak()
    try:
        app()
    except DepthtimeError as error:
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        console.print("error: ", style="bold red", end="")
        console.print(f"{error}{notes}", markup=False)
        sys.exit(error.exit_code)


def _speak() -> None:
    """Messages of the package go to the screen; a stage adds its own log file."""
    screen = ScreenHandler(logging.INFO)
    logger.addHandler(screen)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").addHandler(screen)


if __name__ == "__main__":
    main()
