"""The commands for learning: ``optfair demo``, ``exercise``, ``grade`` and ``quiz``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair import metrics, registry
from optfair.cli.console import Json, answer, document, lines, reporting, table
from optfair.errors import DataError, needed
from optfair.registry import fact_files
from optfair.storage import made_folder, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optfair.core.solution import Solution


# The commands for learning: ``optfair exercise``, ``grade`` and ``quiz``.


def _exercises(incomplete: str) -> list[str]:
    """Return the names of exercises that begin like this, for the shell's completion."""
    names = (n.removeprefix("exercises/") for n in fact_files("problems") if "exercises/" in n)
    return [n for n in names if n.startswith(incomplete)]


def exercise(
    name: Annotated[
        str | None, typer.Argument(help="Name of an exercise.", autocompletion=_exercises)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what an exercise asks, or list all of them."""
    from optfair.library.exercise import exercise as load
    from optfair.library.exercise import exercise_names

    with reporting(as_json):
        if name is None:
            tasks = [load(n) for n in exercise_names()]
            if as_json:
                document({"exercises": [_facts(task) for task in tasks]})
            else:
                rows = [(t.name, t.problem_class, t.title) for t in tasks]
                table(("name", "class", "title"), rows)
            return
        task = load(name)
        asked = f"; and `prices` for {', '.join(task.prices)}" if task.prices else ""
        answer(
            as_json,
            _facts(task),
            f"{task.title}  ({task.source})",
            "",
            task.task,
            "",
            "Write a file answer.py that defines `problem` (a cvxpy.Problem in these variables) or"
            f" `values` (a dictionary){asked}.",
            f"Then: optfair grade answer.py {task.name}",
        )


def _facts(task: Any) -> dict[str, Any]:
    """Return what may be known before an answer."""
    return {
        "name": task.name,
        "title": task.title,
        "class": task.problem_class,
        "source": task.source,
        "task": task.task,
        "prices": task.prices,
        "hints": len(task.hints),
    }


def grade(
    file: Annotated[
        Path, typer.Argument(metavar="ANSWER", help="File of Python that defines the answer.")
    ],
    name: Annotated[str, typer.Argument(help="Name of the exercise.", autocompletion=_exercises)],
    hints: Annotated[int, typer.Option(min=0, help="Show so many hints after a mistake.")] = 0,
    time_limit: Annotated[float, typer.Option(min=1, help="Wall seconds for the answer.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Mark an answer: feasible, class, gap, prices, and what is wrong.

    The file runs in a process of its own with limits on time and memory. That is no sandbox: it can
    do whatever you can.
    """
    from optfair.library.exercise import Step
    from optfair.library.exercise import exercise as load

    with reporting(as_json):
        if not file.is_file():
            raise DataError(f"there is no file {file}", remedy="check the path")
        task = load(name)
        steps = marked_apart(file, task.name, time_limit)
        right = bool(steps) and all(step["ok"] for step in steps)
        shown = [] if right else list(task.hints[:hints])
        rows = [str(Step(**step)) for step in steps] + [f"hint   {hint}" for hint in shown]
        left = len(task.hints) - len(shown)
        if right or left:
            more = f"{left} hint{'s' * (left > 1)} left: --hints {len(shown) + 1}"
            rows.append("right" if right else more)
        content = {"exercise": task.name, "right": right, "steps": steps, "hints": shown}
        answer(as_json, content, *rows, failed=not right)


# The worker: a process that runs the answer, and writes what came of it into a file.

# a program that imports a modelling library maps a few gigabytes of addresses
MEMORY = 8 << 30
WORKER = "from optfair.cli.learning import worker; worker()"


def marked_apart(answer: Path, name: str, time_limit: float) -> list[dict[str, Any]]:
    """Return the steps of marking an answer in a process of its own, whatever it does."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "mark.json"
        words = [str(answer.resolve()), name, str(result), str(time_limit)]
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *words],
            cwd=answer.resolve().parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(time_limit)
        except subprocess.TimeoutExpired:
            return [_step(f"{answer.name} ends within {time_limit:g} s", "it was stopped")]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        try:
            steps = json.loads(result.read_text(encoding="utf-8"))
            return [{k: s[k] for k in ("what", "ok", "detail")} for s in steps]
        except (OSError, ValueError, KeyError, TypeError):
            how = f"its process ended with code {process.returncode} before it was marked"
            return [_step(f"{answer.name} runs to its end", how)]


def _step(what: str, detail: str) -> dict[str, Any]:
    return {"what": what, "ok": False, "detail": detail}


def worker() -> None:
    """Run and mark the answer named on the command line."""
    import resource

    from optfair.library.exercise import answer_of, mark
    from optfair.library.exercise import exercise as load

    file, name, result, seconds = Path(sys.argv[1]), *sys.argv[2:5]
    resource.setrlimit(resource.RLIMIT_CPU, (int(float(seconds)) + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.argv = [str(file)]
    try:
        answer = answer_of(file)
        steps = [
            {"what": s.what, "ok": s.ok, "detail": s.detail} for s in mark(load(name), answer).steps
        ]
    except BaseException as e:  # whatever an answer raises, also an exit
        steps = [_step(f"{file.name} runs", f"{_line(e, file)}{type(e).__name__}: {e}")]
    Path(result).write_text(json.dumps(steps), encoding="utf-8")


def _line(e: BaseException, file: Path) -> str:
    """Return the line of the answer in which an error was raised."""
    if isinstance(e, SyntaxError):
        return f"line {e.lineno}: "
    place, frame = "", e.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(file):
            place = f"line {frame.tb_lineno}: "
        frame = frame.tb_next
    return place


def quiz(
    seed: Annotated[int, typer.Option(min=0, help="Other questions by another number.")] = 0,
    count: Annotated[int, typer.Option("-n", min=1, max=200, help="How many.")] = 10,
    answers: Annotated[bool, typer.Option("--answers", help="Print the answers too.")] = False,
    as_json: Json = False,
) -> None:
    """Ask which formulas are convex; each answer is proved and tested."""
    from optfair.library.exercise import questions

    with reporting(as_json):
        asked = questions(count, seed)
        if as_json:
            document({"questions": [question.to_dict(answers) for question in asked]})
            return
        right, typed = 0, sys.stdin.isatty() and not answers
        for i, question in enumerate(asked, 1):
            lines(f"{i}. {question}")
            if typed:
                guess = typer.prompt("convex, concave, affine or neither").strip().lower()
                right += guess == question.answer
                lines("right" if guess == question.answer else f"no: {question.answer}")
            if answers or typed:
                lines(f"   {question.answer}: {question.why}")
        if typed:
            lines(f"{right} of {len(asked)} right")
        elif not answers:
            lines("", "answers: the same command with --answers")


# A tour in a few seconds: declare, classify, solve, verify, compose, alternate, sweep, draw.

CLUSTERS, SEED, TOLERANCE = 5, 0, 1e-9


def demo(out: Path, quick: bool = False) -> dict[str, Any]:
    """Cluster German Credit fairly by sex, and show each step.

    Parameters
    ----------
    out : Path
        Folder for two pictures; made if it is not there.
    quick : bool
        Fewer points in the sweep.

    Returns
    -------
    dict
        The numbers that were printed: ``class``, ``solver``, ``objective``, ``bound``,
        ``gap``, ``verified``, ``grade``, ``population_balance``, ``balance_soft``, ``balance_hard``,
        ``composed``, ``alternation``, ``front``, ``files`` and ``seconds``.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    """
    from optfair import datasets

    begin = time.perf_counter()
    needed("matplotlib", 'pip install "optfair[plot]"')  # before anything is solved, not after
    made_folder(out)
    X, sex = datasets.load("german_credit").numeric("sex", standardize=True)
    problem = _declared(X, sex)
    solution = problem.solve(tolerance=TOLERANCE)
    verdict = solution.certificate.verify()
    population = float(problem.shares.min() / problem.shares.max())
    numbers = {
        "class": str(problem.problem_class),
        "solver": solution.solver,
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "verified": bool(verdict),
        "grade": str(solution.grade),
        "population_balance": population,
        "balance_soft": metrics.balance(sex, solution["assignment"], soft=True),
        "balance_hard": metrics.balance(sex, solution["assignment"]),
    }
    say("Solve and verify", title=True)
    say(solution)
    say(f"  certificate  {verdict}: {solution.certificate}")
    say(
        f"  balance      {numbers['balance_soft']:.4f} soft, {numbers['balance_hard']:.4f} of the"
        f" hard labels; the population has {population:.4f}"
    )
    numbers["composed"] = _composed(problem, solution)
    fair = registry.load("estimators", "alternate")(problem, tolerance=TOLERANCE)
    numbers["alternation"] = _alternated(fair, sex)
    plain = fair.problem.without("fairness").solve(tolerance=TOLERANCE)
    front = _swept(fair.problem, plain, sex, points=6 if quick else 15)
    numbers["front"] = front
    figures = {
        "composition.png": _composition(sex, plain, fair),
        "front.png": _front(front, population),
    }
    numbers["files"] = _saved(figures, Path(out))
    numbers["seconds"] = time.perf_counter() - begin
    say(f"\nDone in {numbers['seconds']:.1f} s.")
    return numbers


def say(text: object, *, title: bool = False) -> None:
    """Print a line as it is, or the title of a step, bold."""
    typer.echo(typer.style(f"\n{text}", bold=True) if title else text)


def _declared(X: Any, sex: Any) -> Any:
    from sklearn.cluster import kmeans_plusplus

    centers, _ = kmeans_plusplus(X, CLUSTERS, random_state=SEED)
    problem = registry.load("models", "FairAssignment")(X, groups=sex, centers=centers)
    say("Declare and classify", title=True)
    say(
        f"German Credit: {X.shape[0]} applicants, {X.shape[1]} standardised columns, groups by"
        f" sex ({', '.join(map(str, problem.group_names))}), {CLUSTERS} k-means++ centers"
    )
    say(problem)
    say("\nWhy this class:")
    say(problem.explain())
    return problem


def _composed(problem: Any, solution: Solution) -> dict[str, Any]:
    """Add a rule, solve on the same route, and ask what integrality would change."""
    share = problem.with_constraints(share=registry.load("rules", "cluster_share")(lower=0.15))
    again = share.solve(tolerance=TOLERANCE, warm_start=solution)
    sizes = again["masses"].sum(axis=0)
    integral = share.with_integrality("assignment")
    say("Compose", title=True)
    say("every cluster gets at least 15% of the rows: share=cluster_share(lower=0.15)")
    say(f"  class        {share.explain_change(problem)}")
    say(
        f"  solved by    {again.solver}, cost {solution.objective:.4f} -> {again.objective:.4f},"
        f" smallest cluster {sizes.min():.1%}"
    )
    say(f"  whole rows   {integral.explain_change(share)}")
    return {
        "class": str(share.problem_class),
        "integral_class": str(integral.problem_class),
        "solver": again.solver,
        "objective": again.objective,
        "smallest_share": float(sizes.min()),
        "verified": bool(again.certificate.verify()),
    }


def _alternated(fair: Any, sex: Any) -> dict[str, Any]:
    balance = metrics.balance(sex, fair.labels)
    say("Alternate assignment and centers to a fair clustering", title=True)
    say(fair)
    say(f"  balance    {balance:.4f} of the hard labels")
    return {
        "status": fair.status,
        "n_iter": fair.n_iter,
        "cost_before": fair.history[0],
        "cost_after": fair.history[-1],
        "history": list(fair.history),
        "balance_hard": balance,
        "gap": fair.solution.gap,
        "verified": bool(fair.solution.certificate.verify()),
    }


def _swept(problem: Any, plain: Solution, sex: Any, points: int) -> dict[str, list[float]]:
    """Return cost and soft balance over tolerances from perfectly fair to plain."""
    import numpy as np

    widest = metrics.additive_gap(sex, plain["assignment"], soft=True)
    additive_gap = registry.load("rules", "additive_gap")
    unruled = problem.without("fairness")
    eps = np.linspace(0.0, widest, points).tolist()
    solutions: list[Solution] = []
    for e in eps:
        ruled = unruled.with_constraints(fairness=additive_gap(e))
        solutions.append(
            ruled.solve(tolerance=TOLERANCE, warm_start=solutions[-1] if solutions else plain)
        )
    front = {
        "eps": eps,
        "cost": [s.objective for s in solutions],
        "balance": [metrics.balance(sex, s["assignment"], soft=True) for s in solutions],
    }
    say("Sweep the tolerance of additive_gap at the final centers", title=True)
    say(
        f"  {points} problems in {sum(sum(s.seconds.values()) for s in solutions):.2f} s: cost"
        f" {front['cost'][-1]:.4f} at balance {front['balance'][-1]:.4f} (plain) to"
        f" {front['cost'][0]:.4f} at {front['balance'][0]:.4f} (perfectly fair)"
    )
    return front


def _figure(height: float) -> Figure:
    """Return a figure that needs no screen and is not kept by pyplot."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    roomy = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, hspace=0.06)
    return Figure(figsize=(7.2, height), layout=roomy)


def _composition(sex: Any, plain: Solution, fair: Any) -> Figure:
    from optfair.plots import plot_composition

    figure = _figure(7.4)
    above, below = figure.subplots(2, 1)
    plot_composition(sex, plain["assignment"], ax=above, title="Nearest center: clusters differ")
    plot_composition(sex, fair.labels, ax=below, title="Fair: each cluster mirrors the population")
    legend = above.get_legend()
    if legend is not None:  # the one below serves both
        legend.remove()
    above.set_xlabel("")
    return figure


def _front(front: dict[str, list[float]], best: float) -> Figure:
    from optfair.plots import plot_front

    figure = _figure(4.6)
    more = front["cost"][0] / front["cost"][-1] - 1.0
    sweep = SimpleNamespace(label="additive gap", parameter="eps", values=front["eps"], **front)
    plot_front(
        sweep,
        best_balance=best,
        soft=True,
        units="mean squared distance, standardised",
        title=f"At these centers, perfect balance of the sexes costs {more:.1%} more",
        ax=figure.subplots(),
    )
    return figure


def _saved(figures: dict[str, Figure], out: Path) -> list[str]:
    say("Pictures", title=True)
    files = []
    for name, figure in figures.items():
        write_whole(out / name, partial(figure.savefig, dpi=150))
        files.append(str(out / name))
        say(f"  {out / name}")
    return files
