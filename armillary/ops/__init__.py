"""Every operator of the graph language, one file per operator or family, in folders by idea.

In: nothing. Out: each file puts its `Op` records into `relay.op.OPS` when it is imported: one by one, as they are asked
for, or all (`relay/lazy_registry.py`). Invariant: there is no list of files to keep; a new file is found by being here.
Files whose name starts with an underscore are helpers and are imported by those that use them.
"""
