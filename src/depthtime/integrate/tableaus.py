"""Explicit Runge-Kutta schemes as data. A solver is one of these plus the shared stepper of `fixed`."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[float, ...]


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau of an explicit scheme with s stages: nodes c (s), matrix a (strictly lower), weights b (s).

    error_weights: b minus the weights of the embedded scheme of lower order; empty where there is none.
    is_fsal:       the last slope of a step is the first slope of the next one (first same as last).
    """

    name: str
    order: int
    c: Row
    a: tuple[Row, ...]
    b: Row
    source: str
    error_weights: Row = ()
    is_fsal: bool = False

    @property
    def num_stages(self) -> int:
        return len(self.b)


EULER = Tableau("euler", 1, (0.0,), ((),), (1.0,), "Euler (1768); Hairer, Norsett, Wanner (1993), section I.7")

MIDPOINT = Tableau(
    "midpoint", 2, (0.0, 0.5), ((), (0.5,)), (0.0, 1.0), "Runge (1895); Hairer et al. (1993), section II.1, eq. 1.4"
)

HEUN2 = Tableau(
    "heun2",
    2,
    (0.0, 1.0),
    ((), (1.0,)),
    (0.5, 0.5),
    "Heun (1900), trapezoidal form; Hairer et al. (1993), section II.1",
)

RK4 = Tableau(
    "rk4",
    4,
    (0.0, 0.5, 0.5, 1.0),
    ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    (1 / 6, 1 / 3, 1 / 3, 1 / 6),
    "Kutta (1901), the classical scheme; Hairer et al. (1993), section II.1, table 1.2",
)

RK4_38 = Tableau(
    "rk4_38",
    4,
    (0.0, 1 / 3, 2 / 3, 1.0),
    ((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    (1 / 8, 3 / 8, 3 / 8, 1 / 8),
    "Kutta (1901), the 3/8 rule; Hairer et al. (1993), section II.1, table 1.2; torchdiffeq calls it rk4",
)

# The slope at (t + h, y): y is from the left end, so the row sum is 0, but the time is from the right end. Only a
# field that reads t can tell it from euler; layer k of a stack of L is then the field at t = k / L, k = 1 .. L.
EULER_RIGHT = Tableau("euler_right", 1, (1.0,), ((),), (1.0,), "explicit Euler with the field taken at t + h")

# Coefficients are known to 16 digits, error weights to 15. Listings give the last error weight as +1/66, too; only
# with -1/66 do the weights sum to zero.
TSIT5 = Tableau(
    "tsit5",
    5,
    (0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    (
        (),
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
    ),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774, 0.0),
    "Tsitouras (2011), Runge-Kutta pairs of order 5(4), Computers and Mathematics with Applications 62, table 1",
    error_weights=(
        0.001780011052226,
        0.000816434459657,
        -0.007880878010262,
        0.144711007173263,
        -0.582357165452555,
        0.458082105929187,
        -1 / 66,
    ),
    is_fsal=True,
)

TABLEAUS = {scheme.name: scheme for scheme in (EULER, EULER_RIGHT, MIDPOINT, HEUN2, RK4, RK4_38)}
"""The fixed-step solvers."""

ADAPTIVE = {"adaptive_heun": 2, "bosh3": 3, "dopri5": 5, "tsit5": 5, "dopri8": 8}
"""The adaptive solvers and their orders: tsit5 is ours, the others are torchdiffeq's."""
