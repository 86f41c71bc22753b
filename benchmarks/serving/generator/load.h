/* A load generator for servers that fan updates out: see load.c for what it does. */
#ifndef LOAD_H
#define LOAD_H

#include <stdint.h>
#include <stddef.h>

enum { CLOSED, OPENING, SUBSCRIBING, READY };

#define BUFFER_BYTES 4096

/* One subscriber. */
struct conn {
    int fd;
    int state;
    uint32_t number;       /* among all subscribers of all workers */
    uint32_t have;         /* bytes in the buffer */
    uint64_t latest;       /* version received */
    uint8_t *buffer;       /* only while a message is in it in part */
    /* websocket only: */
    uint64_t session, messages, digest_count, digest_sum;
    uint8_t *ack_bytes;
    uint32_t ack_size;
    int acks;
    int64_t ack_due_ns;    /* 0 if there is nothing to ack */
};

/* What the command line asked for. */
struct options {
    const char *protocol;  /* mqtt or websocket */
    const char *host;
    int port;              /* of the protocol the subscribers speak */
    int mqtt_port;         /* where updates are published */
    int subscribers, workers, topics, per_client, clean;
    double window, rate, warmup_s, seconds;
    const char *prefix;    /* of client ids */
    const char *app;       /* topics are app/o0, app/o1, ... */
    uint64_t first;        /* versions published rise from here */
    int hold;              /* connect, say so, and stay until standard input ends */
};

extern struct options options;

/* A protocol: what a subscriber says when it is connected, and what it makes of what it hears.
   `take` consumes whole messages from data and returns how many bytes those were. */
struct protocol {
    void (*greet)(struct conn *);
    size_t (*take)(struct conn *, const uint8_t *data, size_t size);
};

extern const struct protocol mqtt, websocket;

/* For protocols. */
int64_t now_ns(void);
void say(struct conn *, const void *data, size_t size);
void subscribed(struct conn *);                   /* all of its topics are confirmed */
void received(struct conn *, uint64_t version);   /* an update of this run, or an older one */
void ack_later(struct conn *);                    /* websocket: call websocket_ack in 50 ms */
void websocket_ack(struct conn *);
void fail(const char *why);
void topic_of(const struct conn *, int i, char *text, size_t size);

/* For the publisher. */
size_t mqtt_connect(uint8_t *out, const char *id, int clean);
size_t mqtt_publish(uint8_t *out, const char *topic, uint16_t id, uint64_t version);

#endif
