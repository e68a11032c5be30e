"""The commands for learning: ``optfair exercise``, ``grade`` and ``quiz``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from optfair.cli.console import FAILED, Json, document, lines, reporting, table
from optfair.errors import DataError
from optfair.locate import fact_files


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
            found = [load(n) for n in exercise_names()]
            if as_json:
                document({"exercises": [_facts(task) for task in found]})
            else:
                rows = [(t.name, t.problem_class, t.title) for t in found]
                table(("name", "class", "title"), rows)
            return
        task = load(name)
        if as_json:
            document(_facts(task))
            return
        asked = f"; and `prices` for {', '.join(task.prices)}" if task.prices else ""
        lines(
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
    answer: Annotated[Path, typer.Argument(help="File of Python that defines the answer.")],
    name: Annotated[str, typer.Argument(help="Name of the exercise.", autocompletion=_exercises)],
    hints: Annotated[int, typer.Option(min=0, help="Show so many hints after a mistake.")] = 0,
    time_limit: Annotated[float, typer.Option(min=1, help="Wall seconds for the answer.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Mark an answer: feasible, class, gap, prices, and what is wrong.

    The file runs in a process of its own with limits on time and memory. That is no sandbox: it can
    do whatever you can.
    """
    from optfair.library.exercise import exercise as load

    with reporting(as_json):
        if not answer.is_file():
            raise DataError(f"there is no file {answer}", remedy="check the path")
        task = load(name)
        steps = marked_apart(answer, task.name, time_limit)
        right = bool(steps) and all(step["ok"] for step in steps)
        shown = [] if right else list(task.hints[:hints])
        if as_json:
            document({"exercise": task.name, "right": right, "steps": steps, "hints": shown})
        else:
            for step in steps:
                detail = f": {step['detail']}" * bool(step["detail"])
                lines(f"{'ok   ' if step['ok'] else 'WRONG'}  {step['what']}{detail}")
            left = len(task.hints) - len(shown)
            more = f"{left} hint{'s' * (left > 1)} left: --hints {len(shown) + 1}" if left else ""
            lines(*(f"hint   {hint}" for hint in shown), *([] if right else filter(None, [more])))
            if right:
                lines("right")
        if not right:
            raise typer.Exit(FAILED)


# The worker: a process that runs the answer, and writes what came of it into a file.

# a program that imports a modelling library maps a few gigabytes of addresses
MEMORY = 8 << 30
WORKER = "from optfair.cli.grade import worker; worker()"


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
    found, frame = "", e.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(file):
            found = f"line {frame.tb_lineno}: "
        frame = frame.tb_next
    return found


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
