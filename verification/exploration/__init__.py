"""Exhaustive exploration: everything that may happen to a small cluster, on the code that serves.

The shard and the registrars are the hosts of `roskva.host`, the clients are `ClientMachine`; the
messages are bytes of the real codec. Around them is a model of a network, a store and a feed, and
of applications that look when told to: it carries out what they ask for, and decides nothing.
Breadth first, every order of events and every fault within the bounds is tried. Every state found
is judged (`judge.py`), and from every one of them, with the faults stopped, everybody has to become
fresh.

**What is abstracted, and so not proved here** (the simulator covers these, by sampling):

- *Time.* There are no durations, only armed timers. Short ones (a client's batch and reconnect)
  may run out at any moment. Long ones run out when nothing else is left to do, in any order but
  that a dead link is noticed before anything slower; one that runs out early is a fault, and
  counted. Backoff, smear, rates and presence intervals are therefore absent, and a paused process
  that wakes with stale timers appears only as early timers of others.
- *Randomness.* Dice always show the middle; client ids, nonces and epochs count upwards. Tokens
  are open: forgery, expiry and rejected tokens are not explored.
- *Size.* No slices: everything fits one message and one turn. One shard.
- *Order within a message* and of dictionaries: equal sets are equal states.
- *Crash and restart are one step*, of a whole process; what it had sent on connections to clients
  still arrives, what it had not yet received is lost.
- *The store* carries out one operation at a time. The feed never fails to append what is published,
  and does so at once: a publish, its group and its answer are one step. Nobody else reads it, so
  nobody else begins epochs. Backends and the bridge have a link of
  their own to the shard, which never breaks.
- *The bridge* has been heard of lately, if it ever was since the shard started.
- Resets, sources, payloads, authorisation and MQTT are left out.
- *Bounds*: so many publishes, operations and faults, and no more; what a configuration calls eager
  is never overtaken (`bounds.py`).
"""
