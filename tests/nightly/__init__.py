"""What takes minutes to hours, in parts that each end within 80 minutes on two cores, and one account of what was tried.

    python -m tests.nightly                 lists the parts, and how much of each was tried on this code
    python -m tests.nightly PART            goes on with a part where it was left; --minutes 10 stops earlier

`account.json` keeps, for each case, the commit of the code, the day, the inputs tried and what was found; the table of
docs/reliability.md is made from it by `python -m tests.update_expectations`.
"""
