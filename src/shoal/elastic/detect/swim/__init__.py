"""SWIM with Lifeguard: members find silent members themselves, at a load that n does not change.

Each member probes one other per interval, directly, then through others; what is learned travels on the
probes. A member is suspected before it is declared dead, for a time that shrinks as others confirm it,
and can refute. Lifeguard: a member that does badly itself (missed answers, late timers) gives others
more time. `Node` is pure: events and the time in, datagrams and changes out.

    SWIM: Das, Gupta, Motivala, DSN 2002.  Lifeguard: Dadgar, Phillips, Currey, DSN-W 2018.

- `settings`    every interval and limit
- `messages`    what is said, and how it is framed; limits of the parser
- `members`     the table, which news wins, suspicions, and what is still to be passed on
- `prober`      one probe after another
- `node`        all of it behind `step`
- `transport`   the sockets: UDP and TCP at one port, sealed with the job's keys

It must not know the coordinator, workers, or torch.
"""
