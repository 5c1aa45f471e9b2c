"""The web console: pages about a group, for a browser on this machine.

`views` makes rows of what a group says, and touches nothing; `watch` asks the group by the public
clients; `access` lets in who may come in; `pages` answers requests; `app` puts them together.
"""
