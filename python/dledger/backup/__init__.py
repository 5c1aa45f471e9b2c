"""Backups of groups: copies of a consistent state, in chunks that are named by their content.

::

    <url>/manifests/<index>-<time>-<hash>.json   one for each backup; written last
    <url>/chunks/<2 digits>/<SHA-256>            pieces of the log, of catalogs and of topic indexes
    <url>/running/<id>.json                      backups under way, or killed

A chunk never changes, and several backups share it. A backup counts when its manifest is there and
has the hash of its name.
"""
