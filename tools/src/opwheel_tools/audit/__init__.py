"""The audit of any operator library, one that knows nothing of opwheel included.

``target`` loads the library, ``registrations`` and ``listing`` say what it registers, ``samples`` and ``recording``
find calls of it, ``checks`` measures one call, ``worker`` does all of this in a process of its own, ``cells`` starts
such processes and outlives them, ``allowances`` marks what is so on purpose, ``reproduction`` makes a script of a
finding, ``report`` writes it all down.
"""
