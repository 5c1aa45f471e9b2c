"""What a RocketMQ broker does with files: a store that is written here, and that a real broker opens and goes on with.

`MessageStore` is the whole; its parts can be used alone: `CommitLog`, `ConsumeQueues`, `IndexService`, and `Reput`,
which makes the latter two from the first. Logs are written through `MappedFileQueue`: files of one size.

Nothing here is safe for use by several threads at once, except where it says so.
"""
