"""Programs that the tests here run by themselves are no tests."""

collect_ignore = ["calls.py", "damaged_files.py", "harness.py", "interrupts.py", "memory.py"]
collect_ignore += ["writers.py"]
