"""Explicit Runge-Kutta schemes as data. A solver is one of these plus the shared stepper of `fixed`."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[float, ...]


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau of an explicit scheme with s stages: nodes c (s), matrix a (strictly lower), weights b (s)."""

    name: str
    order: int
    c: Row
    a: tuple[Row, ...]
    b: Row
    source: str

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

TABLEAUS = {scheme.name: scheme for scheme in (EULER, MIDPOINT, HEUN2, RK4)}
