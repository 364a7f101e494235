"""results/sensitivity.html: our sentences, each word coloured by how sensitive the output is to it.

One file that needs nothing else: model and score are chosen by radio buttons and style rules, without a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from string import ascii_lowercase
from typing import Any

from depthtime import paths
from depthtime.config import Study
from depthtime.records import write_bytes
from depthtime.report import wording as say
from depthtime.report.sensitivity import LABELS, runs_of
from depthtime.report.sources import Sources, load_sources

PAGE = paths.RESULTS / "sensitivity.html"
LEVELS = 10  # of colour; the source has 50, which no eye tells apart
LIGHT, STRONG = (255, 255, 255), (86, 180, 233)  # white to a blue on which dark text can be read; also apart in grey
TEXT = "#111111"
ABOUT = {
    "released": "The source's released algorithm: a matrix for each word, moved by the Jacobian of the update at the "
    "output with respect to that word, at the state after each step and with the weights of the step's beginning; its "
    "largest exponent.",
    "mended": "The released algorithm at the state and with the weights that each step uses.",
    "tangent": "Log of the largest growth, until the output, of a small change of the word's input vector, carried "
    "through all words by the linearised steps.",
    "tangent_few": "The same growth among a few random directions of change instead of all.",
    "tangent_mean": "Log of the root mean square growth, over all directions of change, until the output.",
    "exponent": "Largest finite-time Lyapunov exponent of the whole sequence when this word is changed.",
    "deletion": "How much the log probability of the predicted word changes, up or down, when the word is left out.",
    "gradient": "Absolute inner product of the word's input vector with the gradient of that log probability.",
    "rollout": "Attention of the last position to the word through all steps, mean of heads, half of it residual.",
}
STYLE = f"""
:root {{ color-scheme: light; }}
body {{ background: #fff; color: {TEXT}; font: 16px/1.5 system-ui, sans-serif; }}
main {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }}
.choose {{ display: block; margin-top: .8rem; font-weight: 600; }}
input[type=radio] {{ position: absolute; opacity: 0; }}
label {{ display: inline-block; margin-right: 1.2rem; cursor: pointer; }}
label::before {{ content: "\\25CB\\A0"; }}
input:checked + label::before {{ content: "\\25CF\\A0"; }}
input:focus-visible + label {{ outline: 2px solid #0072b2; }}
.about, .run {{ display: none; }}
.about {{ border-left: 4px solid #56b4e9; padding-left: .7rem; }}
.run p {{ margin: .35rem 0; line-height: 2; }}
.w, .last {{ padding: .12rem .3rem; border-radius: .2rem; }}
.last {{ border: 1px dashed #666; }}
.next {{ color: #444; }}
.key span {{ display: inline-block; width: 2rem; height: 1.1rem; border: 1px solid #bbb; margin-right: 1px; }}
"""


def write_page(study: Study) -> None:
    """Write the page; the same record gives the same bytes. Raises: as `load_sources`."""
    write_bytes(PAGE, page(load_sources(study)).encode())


def page(sources: Sources) -> str:
    """The whole page as text."""
    runs, record = runs_of(sources), sources.measured["sensitivity"]
    scores = [name for name in ABOUT if any(name in part["scores"] for _, part in runs.values())]
    body = [
        "<h1>Which words does the next word depend on?</h1>",
        f"<p>{record['num_sentences']} sentences of this study; none is from a corpus. After the last word (dashed) "
        "the model predicts the next one. Colours compare the words of one sentence: ten equal steps from its smallest "
        "to its largest score. Point at a word to read its numbers. Words may score more by their place alone; the "
        "table <code>sensitivity</code> says how much is left without that.</p>",
        '<span class="choose">Score</span>',
        *(_radio("score", number, LABELS[name]) for number, name in enumerate(scores)),
        '<span class="choose">Model</span>',
        *(_radio("run", number, label) for number, (label, _) in enumerate(runs.values())),
        *(_about(number, name, [part for _, part in runs.values()]) for number, name in enumerate(scores)),
        f'<p class="key">least in its sentence {"".join(_swatches())} most</p>',
        '<div class="texts">',
        *(_run(number, label, part, scores) for number, (label, part) in enumerate(runs.values())),
        "</div>",
    ]
    head = (
        f'<meta charset="utf-8"><title>Token sensitivity</title><style>{STYLE}{_rules(len(scores), len(runs))}</style>'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def color(level: int) -> str:
    """The background of a level, #rrggbb, from LIGHT to STRONG."""
    share = level / (LEVELS - 1)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(LIGHT, STRONG, strict=True))


def levels(values: Sequence[float]) -> list[int]:
    """Which of LEVELS equal steps between the smallest and the largest value each is in; all 0 where they are equal."""
    low, high = min(values), max(values)
    if high == low:
        return [0] * len(values)
    return [min(int(LEVELS * (value - low) / (high - low)), LEVELS - 1) for value in values]


def _rules(num_scores: int, num_runs: int) -> str:
    """What is shown and how it is coloured for each choice."""
    rules = []
    for number in range(num_scores):
        chosen, letter = f"#score-{number}:checked ~", ascii_lowercase[number]
        rules.append(f"{chosen} .about-{number} {{ display: block; }}")
        rules += [f"{chosen} .texts .{letter}{n} {{ background: {color(n)}; }}" for n in range(1, LEVELS)]
    rules += [f"#run-{number}:checked ~ .texts .run-{number} {{ display: block; }}" for number in range(num_runs)]
    return "\n".join(rules) + "\n"


def _radio(group: str, number: int, label: str) -> str:
    at, checked = f"{group}-{number}", " checked" if number == 0 else ""
    return f'<input type="radio" name="{group}" id="{at}"{checked}><label for="{at}">{escape(label)}</label>'


def _about(number: int, name: str, parts: Iterable[dict[str, Any]]) -> str:
    """What a score is, and the range of its scale in each model."""
    found = [
        [value for text in part["texts"] for value in text["scores"][name]] for part in parts if name in part["scores"]
    ]
    ranges = say.joined(f"{say.small(min(values))} to {say.small(max(values))}" for values in found)
    lacking = "" if len(found) == len(list(parts)) else " Not for models without weights between their layers."
    text = f"<strong>{escape(LABELS[name])}.</strong> {escape(ABOUT[name])} Values here: {ranges}.{lacking}"
    return f'<p class="about about-{number}">{text}</p>'


def _swatches() -> Iterable[str]:
    return (f'<span style="background:{color(level)}"></span>' for level in range(LEVELS))


def _run(number: int, label: str, part: dict[str, Any], scores: Sequence[str]) -> str:
    """All sentences as one model reads them."""
    rows = [_sentence(text, scores) for text in part["texts"]]
    heading = f"<h2>{escape(label)}, seed {part['seeds'][0]}</h2>"
    return f'<section class="run run-{number}">{heading}\n' + "\n".join(rows) + "</section>"


def _sentence(text: dict[str, Any], scores: Sequence[str]) -> str:
    held = [(ascii_lowercase[i], name) for i, name in enumerate(scores) if name in text["scores"]]
    shades = {letter: levels(text["scores"][name]) for letter, name in held}
    words = []
    for place, word in enumerate(text["words"][:-1]):
        classes = " ".join(f"{letter}{shade[place]}" for letter, shade in shades.items())
        told = "; ".join(f"{LABELS[name]} {say.small(text['scores'][name][place])}" for _, name in held)
        words.append(f'<span class="w {classes}" title="{escape(told)}">{escape(word)}</span>')
    words.append(f'<span class="last">{escape(text["words"][-1])}</span>')
    predicted = (
        f'<span class="next">→ {escape(text["prediction"])} (log p {say.number(text["log_probability"], 1)})</span>'
    )
    return f"<p>{' '.join(words)} {predicted}</p>"
