"""How many instructions calls and kernels take: a check on speed that no noise of the clock disturbs.

Read in this order: ``statements`` (what is counted), ``watched`` (the program that runs under callgrind), ``callgrind``
(runs it), ``record`` (the committed counts and how a run compares with them).
"""
