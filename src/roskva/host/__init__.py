"""The machines of the core with their whole order of effects, and still no I/O.

A *host* is what a process runs: `ShardHost` is a shard with its matcher, its client rows and its
feed, `RegistrarHost` a registrar with its links, its fan-out and what its connections are sent.
What is decided is decided here: what is committed, applied, told and answered, and in which order.
An *executor* carries the effects out and knows nothing: `server/` with asyncio, threads and disks,
`simulation/` in virtual time.

The contract is the core's (`step(event, now) -> effects`, `next_deadline()`), with lower effects:
append to the feed, read it, write and read rows, send on a link, write bytes to connections.
"""
