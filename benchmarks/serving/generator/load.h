/* A population of clients and a publisher, to see what a server can do: see load.c. */
#ifndef LOAD_H
#define LOAD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MESSAGE_BYTES 65536 /* that a client takes at once, or keeps of a message in part */
#define RING 65536          /* updates under way, at most */
#define MICROSECONDS 2000000
#define MAX_WORKERS 64

enum { CLOSED, OPENING, SUBSCRIBING, READY };

/* One connection: of a subscriber, or of the publisher. */
struct conn {
    int fd;
    int state;
    int publishes;
    int known;             /* it was READY before: the server may remember it */
    uint32_t number;       /* among all subscribers of all workers */
    uint32_t have;         /* bytes of a message that is here in part */
    uint32_t confirmed;    /* answers to its subscriptions, where there are several */
    uint8_t *part;
    int64_t open_ns;       /* not before */
    _Atomic uint64_t *latest; /* version received, of each of its topics */
    /* websocket only: */
    uint64_t session, messages, digest_count, digest_sum;
    uint8_t *ack_bytes;
    uint32_t ack_size;
    int acks;
    int64_t ack_due_ns;    /* 0 if there is nothing to ack */
};

/* What the command line asked for. */
struct options {
    const char *protocol;  /* mqtt, websocket, nats, kv, redis or streams */
    const char *host;
    int port;              /* of the protocol the subscribers speak */
    int mqtt_port;         /* where updates are published, if the protocol is websocket */
    int subscribers, workers, topics, per_client, clean, retain, reconnect;
    int pace;              /* connections per second of all workers; 0: as they come */
    const char *prefix;    /* of client ids */
    const char *app;       /* topics are app/o0, app/o1, ... */
    uint64_t first;        /* versions published rise from here, topic after topic */
};

extern struct options options;

/* A protocol: what a client says when it is connected, what it makes of what it hears, and what an
   update looks like that is published. `take` consumes whole messages from data and returns how many
   bytes those were. */
struct protocol {
    void (*greet)(struct conn *);
    size_t (*take)(struct conn *, const uint8_t *data, size_t size);
    size_t (*publish)(uint8_t *out, uint64_t version, int confirm);
};

extern const struct protocol mqtt, websocket, nats, kv, redis, streams;

/* What the publisher, in the parent, and the workers with the subscribers tell each other. */
enum { KERNEL, PROGRAM, CLOCKS }; /* who says when an update is received: see load.c */

struct worker {
    _Atomic uint64_t deliveries, messages, bytes;
    _Atomic uint32_t histogram[CLOCKS][MICROSECONDS]; /* of the time from publish to receipt */
};

struct shared {
    _Atomic int away, ready, measuring;
    _Atomic uint64_t held;            /* updates × subscribers that hold them or a newer one */
    _Atomic uint64_t wanted;          /* say so when there are as many */
    _Atomic int64_t moved_ns;         /* when `held` or `ready` last changed */
    _Atomic int64_t published_ns[RING]; /* by the clock on the wall, as the kernel stamps */
    struct worker workers[];
};

extern struct shared *shared;
extern _Atomic uint64_t *all_latest;  /* of subscriber after subscriber, topic after topic */
extern int progress;                  /* an eventfd: as many are held as the publisher wanted */

/* load.c */
int64_t now_ns(void);
int64_t wall_ns(void);
void fail(const char *why);
int topic_of(uint32_t subscriber, int i);
size_t topic_name(int topic, char *text, size_t size); /* app/o0 */
int topic_of_version(uint64_t version);
void check_workers(void);

/* subscribers.c */
void work(int number, pid_t parent, const struct protocol *);
int connected(int port, int number);              /* -1: nobody listens */
ssize_t read_from(struct conn *, const struct protocol *); /* 0 or less: the connection is lost */
void say(struct conn *, const void *data, size_t size);
void subscribed(struct conn *);                   /* all of its topics are confirmed */
void refused(struct conn *);                      /* for now: it comes back later */
void received(struct conn *, uint64_t version);   /* an update of this run, or an older one */
void ack_later(struct conn *);                    /* websocket: call websocket_ack in 50 ms */
void websocket_ack(struct conn *);

/* publisher.c */
void accepted(uint64_t version);                  /* it was published, says the server */
void accepted_next(void);                         /* where answers come in order */
void accepted_id(uint16_t id);                    /* where they have 16 bits for a name */
extern uint64_t next_version;
void publish_count(uint64_t count, uint64_t in_flight);
void publish_in_window(double window, double seconds);
void publish_at_rate(double rate, double seconds);
void publish_until_lost(double rate);
int wait_until_held(double quiet_s);
void use_publisher(const struct protocol *, int port);

#endif
