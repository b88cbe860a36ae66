"""Chooses points of a campaign, and learns from their results.

Each line of standard input is a request, each line of standard output its answer, both in JSON:

    {"method": ..., "seed": ..., "dimensions": [...], ...}   the first line, without an answer
    {"ask": N}                                   {"points": [[...], ...]}   an empty list: there are no more
    {"tell": {"points": ..., "scores": ...}}     {"volume": NUMBER or null}

A point has a coordinate for each dimension: a number from 0 to 1 for `real`, a whole number below `count` for `integer`
and `choice`. A score is {"objectives": [...], "excess": [...], "failed": true or false}; less is better.

The same requests get the same answers, so that a search that was killed goes on from its history.
"""

import json
import os
import sys


class Evolution:
    """NSGA-II, SPEA2 and the particle swarm of pymoo, by its own ask and tell."""

    def __init__(self, settings):
        import numpy
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination

        self.numpy = numpy
        self.dimensions = settings["dimensions"]
        method = settings["method"]
        kinds = {dimension["kind"] for dimension in self.dimensions}
        # A particle moves by numbers, so a swarm sees every dimension as one from 0 to 1.
        self.mixed = method != "pso" and kinds != {"real"}
        sizes = {"n_obj": settings["objectives"], "n_ieq_constr": settings["constraints"]}
        if self.mixed:
            names = self.names = [f"{place:05}" for place in range(len(self.dimensions))]
            variables = {name: variable(dimension) for name, dimension in zip(names, self.dimensions)}
            self.problem = Problem(vars=variables, **sizes)
        else:
            self.problem = Problem(n_var=len(self.dimensions), xl=0.0, xu=1.0, **sizes)
        self.algorithm = algorithm(method, settings["population"], self.mixed)
        self.algorithm.setup(self.problem, seed=settings["seed"], termination=NoTermination(), verbose=False)
        self.asked = None

    def ask(self, count):
        self.asked = self.algorithm.ask()
        return [] if self.asked is None else [self.coordinates(one.X) for one in self.asked]

    def tell(self, points, scores):
        from pymoo.core.evaluator import Evaluator
        from pymoo.core.population import Population
        from pymoo.problems.static import StaticProblem

        if self.asked is None or len(self.asked) != len(points):
            self.asked = Population.new(X=[self.inside(point) for point in points])
        for one, point in zip(self.asked, points):
            # Points of the history count, whatever this version of the library chooses.
            if self.coordinates(one.X) != point:
                one.X = self.inside(point)
        values = {"F": self.numpy.array([score["objectives"] for score in scores], dtype=float)}
        if self.problem.n_ieq_constr:
            values["G"] = self.numpy.array([score["excess"] for score in scores], dtype=float)
        Evaluator().eval(StaticProblem(self.problem, **values), self.asked)
        self.algorithm.tell(infills=self.asked)

    def coordinates(self, inside):
        if self.mixed:
            inside = [inside[name] for name in self.names]
            return [
                float(value) if dimension["kind"] == "real" else int(value)
                for value, dimension in zip(inside, self.dimensions)
            ]
        return [scaled(value, dimension) for value, dimension in zip(inside, self.dimensions)]

    def inside(self, point):
        if self.mixed:
            return {
                name: value if dimension["kind"] == "real" else int(value)
                for name, value, dimension in zip(self.names, point, self.dimensions)
            }
        return self.numpy.array([unscaled(value, dimension) for value, dimension in zip(point, self.dimensions)])


def variable(dimension):
    from pymoo.core.variable import Choice, Integer, Real

    if dimension["kind"] == "real":
        return Real(bounds=(0.0, 1.0))
    if dimension["kind"] == "integer":
        return Integer(bounds=(0, dimension["count"] - 1))
    return Choice(options=list(range(dimension["count"])))


def algorithm(method, population, mixed):
    from pymoo.operators.selection.tournament import TournamentSelection

    if method == "pso":
        from pymoo.algorithms.soo.nonconvex.pso import PSO

        return PSO(pop_size=population)
    if method == "nsga2":
        from pymoo.algorithms.moo.nsga2 import NSGA2 as Method, binary_tournament as compare
    else:
        from pymoo.algorithms.moo.spea2 import SPEA2 as Method, spea_binary_tournament as compare
    if not mixed:
        return Method(pop_size=population)
    from pymoo.core import mixed as kinds

    differ = kinds.MixedVariableDuplicateElimination()
    mating = kinds.MixedVariableMating(selection=TournamentSelection(func_comp=compare), eliminate_duplicates=differ)
    return Method(
        pop_size=population, sampling=kinds.MixedVariableSampling(), mating=mating, eliminate_duplicates=differ
    )


class Bayes:
    """A Gaussian process and the expected improvement, of the library bayesian-optimization."""

    def __init__(self, settings):
        from bayes_opt import BayesianOptimization, acquisition

        self.dimensions = settings["dimensions"]
        self.seed = settings["seed"]
        # The library's own kinds of whole numbers and choices are experiments. A choice is a number for each of its
        # values, of which the greatest counts.
        widths = [dimension["count"] if dimension["kind"] == "choice" else 1 for dimension in self.dimensions]
        self.names = [[f"{place:05}.{part:05}" for part in range(width)] for place, width in enumerate(widths)]
        improvement = acquisition.ExpectedImprovement(xi=0.0)
        if settings["at_once"] > 1:
            # Points that run are taken to give the mean of what is known.
            improvement = acquisition.ConstantLiar(base_acquisition=improvement, strategy="mean")
        self.optimiser = BayesianOptimization(
            f=None,
            pbounds={name: (0.0, 1.0) for names in self.names for name in names},
            acquisition_function=improvement,
            random_state=self.seed,
            verbose=0,
            allow_duplicate_points=True,
        )
        self.is_first = True

    def ask(self, count):
        if self.is_first:
            from scipy.stats.qmc import LatinHypercube

            cube = LatinHypercube(len(self.dimensions), rng=self.seed).random(count)
            return [[scaled(u, dimension) for u, dimension in zip(row, self.dimensions)] for row in cube]
        return [self.coordinates(self.optimiser.suggest()) for _ in range(count)]

    def tell(self, points, scores):
        self.is_first = False
        for point, score in zip(points, scores):
            inside = {}
            for value, names, dimension in zip(point, self.names, self.dimensions):
                if dimension["kind"] == "choice":
                    inside.update((name, float(part == value)) for part, name in enumerate(names))
                else:
                    inside[names[0]] = unscaled(value, dimension)
            self.optimiser.register(inside, -score["objectives"][0])

    def coordinates(self, suggested):
        point = []
        for names, dimension in zip(self.names, self.dimensions):
            numbers = [float(suggested[name]) for name in names]
            if dimension["kind"] == "choice":
                point.append(numbers.index(max(numbers)))
            else:
                point.append(scaled(numbers[0], dimension))
        return point


def scaled(value, dimension):
    """The coordinate for a number from 0 to 1."""
    value = min(max(float(value), 0.0), 1.0)
    if dimension["kind"] == "real":
        return value
    return min(int(value * dimension["count"]), dimension["count"] - 1)


def unscaled(value, dimension):
    return value if dimension["kind"] == "real" else (value + 0.5) / dimension["count"]


class Volume:
    """The volume between all results and the worst ones of the first batch: it grows with each better result."""

    def __init__(self):
        self.results = []
        self.worst = None

    def add(self, scores):
        if len(scores[0]["objectives"]) < 2:
            return None
        import moocore
        import numpy

        good = [score["objectives"] for score in scores if not score["failed"]]
        if self.worst is None and good:
            self.worst = [max(column) for column in zip(*good)]
        fine = [score for score in scores if not score["failed"] and all(excess <= 0 for excess in score["excess"])]
        self.results += [score["objectives"] for score in fine]
        if self.worst is None or not self.results:
            return None
        kept = numpy.array(self.results)
        self.results = kept[moocore.is_nondominated(kept)].tolist()
        return float(moocore.hypervolume(numpy.array(self.results), ref=self.worst))


def main():
    # Libraries print; only answers go to the coordinator.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    search = Bayes(settings) if settings["method"] == "bayesian" else Evolution(settings)
    volume = Volume()
    for line in sys.stdin:
        request = json.loads(line)
        if "ask" in request:
            answer = {"points": search.ask(request["ask"])}
        else:
            told = request["tell"]
            search.tell(told["points"], told["scores"])
            answer = {"volume": volume.add(told["scores"])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


main()
