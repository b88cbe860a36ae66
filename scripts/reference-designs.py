#!/usr/bin/env python3
"""Writes the reference values of slipway-campaign's tests, as SciPy and SALib have them.

    scripts/reference-designs.py          write crates/slipway-campaign/tests/reference
    scripts/reference-designs.py check    fail where a file there differs

It installs the versions below into target/reference-venv, and runs itself there.
"""
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

PINNED = ["numpy==2.4.6", "scipy==1.17.0", "SALib==1.6.0"]
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "target" / "reference-venv"
OUT = ROOT / "crates" / "slipway-campaign" / "tests" / "reference"


def enter_venv():
    """Runs this script again with the pinned versions."""
    if not (VENV / "bin" / "python3").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED], check=True)
    python = VENV / "bin" / "python3"
    os.execv(python, [python, *sys.argv])


def problem(dimensions, low=0.0, high=1.0):
    return {
        "num_vars": dimensions,
        "names": [f"x{number}" for number in range(dimensions)],
        "bounds": [[low, high]] * dimensions,
    }


def ishigami(unit):
    x = math.pi * (2 * unit - 1)
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def sobol_g(unit):
    a = np.array([0, 1, 4.5, 9, 99, 99])
    return np.prod((np.abs(4 * unit - 2) + a) / (1 + a), axis=1)


MODELS = {"ishigami": (ishigami, 3), "sobol_g": (sobol_g, 6)}


def sequences():
    """Points without scrambling, and how evenly scrambled ones lie (centred discrepancy, 40 seeds)."""
    wide = qmc.Sobol(1000, scramble=False).random(1024)
    far = qmc.Halton(100, scramble=False)
    far.fast_forward(123_456)
    spread = {}
    for name, make in {
        "sobol": lambda seed: qmc.Sobol(5, scramble=True, rng=seed),
        "halton": lambda seed: qmc.Halton(5, scramble=True, rng=seed),
        "lhs": lambda seed: qmc.LatinHypercube(5, rng=seed),
    }.items():
        found = [qmc.discrepancy(make(seed).random(256), method="CD") for seed in range(40)]
        spread[name] = {"mean": np.mean(found), "deviation": np.std(found, ddof=1)}
    return {
        "sobol": qmc.Sobol(8, scramble=False).random(64),
        "sobol_wide": {str(row): wide[row, ::37] for row in [1, 2, 3, 511, 1023]},
        "halton": qmc.Halton(8, scramble=False).random(64),
        "halton_123456": far.random(1)[0],
        "discrepancy": spread,
    }


def layouts():
    """Saltelli's matrices without scrambling, and FAST's curves with their phases."""
    saltelli = {
        str(second).lower(): sobol_sample.sample(problem(3), 8, calc_second_order=second, scramble=False)
        for second in (False, True)
    }
    curves = []
    for dimensions, samples, harmonics in [(1, 65, 4), (2, 65, 4), (3, 65, 4), (6, 65, 4), (5, 400, 2)]:
        points = fast_sampler.sample(problem(dimensions), samples, M=harmonics, seed=1)
        random = np.random.default_rng(1)
        curves.append({
            "phases": [2 * math.pi * random.random() for _ in range(dimensions)],
            "samples": samples,
            "harmonics": harmonics,
            "points": {str(row): points[row] for row in range(0, len(points), 13)},
        })
    return {"saltelli": saltelli, "fast": curves}


def quantiles():
    """Values at probabilities, by scipy.stats."""
    us = [1e-12, 1e-3, 0.1, 0.25, 0.5, 0.77, 0.9, 0.999, 1 - 1e-9]
    normal = lambda mean, deviation, low, high: stats.truncnorm(
        (low - mean) / deviation, (high - mean) / deviation, mean, deviation)
    spread = math.sqrt(math.log1p((2 / 3) ** 2))
    infinite = math.inf
    return {
        "u": us,
        "values": {
            "uniform": stats.uniform(-2, 7).ppf(us),
            "log-uniform": stats.loguniform(1e-3, 1e4).ppf(us),
            "triangle": stats.triang(0.25, 1, 4).ppf(us),
            "normal": stats.norm(3, 2).ppf(us),
            "normal-cut": normal(3, 2, 0, 4).ppf(us),
            "normal-tail": normal(0, 1, 9, infinite).ppf(us),
            "normal-low-tail": normal(0, 1, -infinite, -20).ppf(us),
            "log-normal": stats.lognorm(spread, scale=3 / math.exp(spread**2 / 2)).ppf(us),
        },
    }


def indices():
    """Sensitivities of two models, from points that both sides compute."""
    found = {}
    for name, (model, dimensions) in MODELS.items():
        space = problem(dimensions)
        trajectories = morris_sample.sample(space, 10, num_levels=4, seed=1)
        base = sobol_sample.sample(space, 256, scramble=False)
        curves = fast_sampler.sample(space, 500, seed=1)
        random = np.random.default_rng(1)
        plain = qmc.Halton(dimensions, scramble=False).random(500)
        found[name] = {
            "morris": {
                "points": trajectories,
                **plucked(morris.analyze(space, trajectories, model(trajectories), num_resamples=1000, seed=1),
                          "mu", "mu_star", "sigma", "mu_star_conf"),
            },
            "saltelli": {
                "samples": 256,
                **plucked(sobol.analyze(space, model(base), num_resamples=1000, seed=1),
                          "S1", "S1_conf", "ST", "ST_conf", "S2", "S2_conf"),
            },
            "fast": {
                "samples": 500,
                "phases": [2 * math.pi * random.random() for _ in range(dimensions)],
                **plucked(fast.analyze(space, model(curves), seed=1), "S1", "ST"),
            },
            "sample": {"points": 500, **of_sample(space, plain, model(plain))},
        }
    return found


def of_sample(space, x, y):
    ranks = np.column_stack([stats.rankdata(column) for column in [*x.T, y]])
    standard = lambda table: (table - table.mean(axis=0)) / table.std(axis=0)
    partial = []
    for column in range(x.shape[1]):
        rest = np.column_stack([np.ones(len(y)), np.delete(ranks[:, :-1], column, axis=1)])
        left = lambda of: of - rest @ np.linalg.lstsq(rest, of, rcond=None)[0]
        partial.append(stats.pearsonr(left(ranks[:, column]), left(ranks[:, -1])).statistic)
    pearson = [stats.pearsonr(column, y) for column in x.T]
    rbd = rbd_fast.analyze(space, x, y, num_resamples=1000, seed=1)
    return {
        "pearson": [one.statistic for one in pearson],
        "pearson_interval": [list(one.confidence_interval(0.95)) for one in pearson],
        "spearman": [stats.spearmanr(column, y).statistic for column in x.T],
        "regression": np.linalg.lstsq(standard(x), standard(y), rcond=None)[0],
        "partial_rank": partial,
        "first": rbd["S1"],
        "first_conf": rbd["S1_conf"],
    }


def plucked(found, *names):
    return {name: found[name] for name in names}


def plain(value):
    """The value in JSON's own types. Floats keep all digits; what is not a number is null."""
    if isinstance(value, dict):
        return {key: plain(of) for key, of in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(of) for of in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value


def main():
    check = sys.argv[1:] == ["check"]
    if sys.argv[1:] not in ([], ["check"]):
        sys.exit(__doc__)
    differing = []
    for name, make in {"sequences": sequences, "layouts": layouts, "quantiles": quantiles, "indices": indices}.items():
        # Long rows on one line each keep the files short.
        text = "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(of)}" for key, of in plain(make()).items()) + "\n}\n"
        path = OUT / f"{name}.json"
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            differing.append(str(path.relative_to(ROOT)))
    if differing:
        sys.exit(f"failed to find the reference values as they are in git: {', '.join(differing)} differ\n"
                 "Hint: run scripts/reference-designs.py, and look at the change")


if __name__ == "__main__":
    if Path(sys.prefix) != VENV:
        enter_venv()
    import numpy as np
    from SALib.analyze import fast, morris, rbd_fast, sobol
    from SALib.sample import fast_sampler
    from SALib.sample import morris as morris_sample
    from SALib.sample import sobol as sobol_sample
    from scipy import stats
    from scipy.stats import qmc

    # SALib warns that its intervals of FAST are unreliable: they are not used here.
    warnings.filterwarnings("ignore", message="FAST confidence")
    main()
