/* NATS, in two ways. Core: a subject per topic, and nobody acknowledges anything; a PING after an
   update tells the publisher that it has arrived. KV: a bucket with a history of 1 is a stream that
   keeps the last message of each subject; a watcher of a key is an ordered consumer of that stream,
   as client libraries make it, with the last message first, heartbeats and flow control. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"

#define STREAM "KV_bench" /* of the bucket "bench", which is made when the server is started */
#define KEYS "$KV.bench."
#define HELLO \
    "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true," \
    "\"lang\":\"c\",\"version\":\"1\",\"protocol\":1}\r\n"

static const char PING[] = "PING\r\n", PONG[] = "PONG\r\n";

static void greet_core(struct conn *conn) {
    char out[2048];
    size_t at = (size_t)sprintf(out, HELLO);
    for (int i = 0; !conn->publishes && i < options.per_client; i++)
        at += (size_t)sprintf(out + at, "SUB %s.o%d %d\r\n", options.app,
                              topic_of(conn->number, i), i + 1);
    at += (size_t)sprintf(out + at, "%s", PING);
    say(conn, out, at);
}

static void greet_kv(struct conn *conn) {
    char out[8192], inbox[64], config[384];
    if (conn->publishes) snprintf(inbox, sizeof inbox, "_INBOX.%s", options.prefix);
    else snprintf(inbox, sizeof inbox, "_INBOX.%s-%u", options.prefix, conn->number);
    size_t at = (size_t)sprintf(out, HELLO "SUB %s.%s 1\r\n", inbox, conn->publishes ? "*" : "r");
    for (int i = 0; !conn->publishes && i < options.per_client; i++) {
        int size = snprintf(config, sizeof config,
            "{\"stream_name\":\"" STREAM "\",\"config\":{\"deliver_subject\":\"%s.d%d\","
            "\"deliver_policy\":\"last_per_subject\",\"ack_policy\":\"none\",\"max_deliver\":1,"
            "\"filter_subject\":\"" KEYS "%s.o%d\",\"flow_control\":true,"
            "\"idle_heartbeat\":5000000000,\"num_replicas\":1,\"mem_storage\":true}}",
            inbox, i, options.app, topic_of(conn->number, i));
        /* A consumer delivers only to a subscription of its very subject. */
        at += (size_t)sprintf(out + at, "SUB %s.d%d %d\r\n", inbox, i, i + 2);
        at += (size_t)sprintf(out + at, "PUB $JS.API.CONSUMER.CREATE." STREAM " %s.r %d\r\n%s\r\n",
                              inbox, size, config);
    }
    at += (size_t)sprintf(out + at, "%s", PING);
    say(conn, out, at);
}

static size_t payload(char *out, uint64_t version) {
    char digits[24];
    int size = sprintf(digits, "%llu", (unsigned long long)version);
    return (size_t)sprintf(out, "%d\r\n%s\r\n", size, digits);
}

static size_t publish_core(uint8_t *out, uint64_t version, int confirm) {
    char *text = (char *)out;
    size_t at = (size_t)sprintf(text, "PUB %s.o%d ", options.app, topic_of_version(version));
    at += payload(text + at, version);
    if (confirm) at += (size_t)sprintf(text + at, "%s", PING);
    return at;
}

static size_t publish_kv(uint8_t *out, uint64_t version, int confirm) {
    (void)confirm; /* a stream always says that it has a message */
    char *text = (char *)out;
    size_t at = (size_t)sprintf(text, "PUB " KEYS "%s.o%d _INBOX.%s.%llu ", options.app,
                                topic_of_version(version), options.prefix,
                                (unsigned long long)version);
    return at + payload(text + at, version);
}

/* The answer to the creation of a consumer, or to an update. */
static void answered(struct conn *conn, const char *subject, const char *text, size_t size) {
    int error = size == 0 || memmem(text, size, "\"error\"", 7) != NULL;
    if (conn->publishes) {
        if (!error) accepted(strtoull(strrchr(subject, '.') + 1, NULL, 10));
    } else if (error) {
        refused(conn); /* the stream is not there yet: the server has just started */
    } else if (++conn->confirmed == (uint32_t)options.per_client) {
        subscribed(conn);
    }
}

/* MSG subject sid [reply] size, HMSG subject sid [reply] size-of-headers size; then the bytes. */
static void message(struct conn *conn, const char *line, const char *body, size_t size, int replies) {
    char subject[128], reply[256] = "";
    int headers = line[0] == 'H';
    if (replies) sscanf(line, "%*s %127s %*s %255s", subject, reply);
    else sscanf(line, "%*s %127s", subject);
    if (headers && replies) { /* flow control: the server goes on when it hears from us */
        char out[320];
        say(conn, out, (size_t)sprintf(out, "PUB %s 0\r\n\r\n", reply));
    } else if (headers) { /* a heartbeat, or nobody has answered */
        if (!memcmp(body, "NATS/1.0 503", 12)) answered(conn, subject, "", 0);
    } else if (!strncmp(subject, "_INBOX", 6)) {
        answered(conn, subject, body, size);
    } else {
        received(conn, strtoull(body, NULL, 10));
    }
}

static size_t take(struct conn *conn, const uint8_t *data, size_t size) {
    size_t at = 0;
    while (at < size && conn->state != CLOSED) {
        const char *line = (const char *)data + at;
        const char *end = memmem(line, size - at, "\r\n", 2);
        if (end == NULL) break;
        size_t length = (size_t)(end - line) + 2;
        if (!memcmp(line, "MSG ", 4) || !memcmp(line, "HMSG ", 5)) {
            int words = 1;
            const char *last = line;
            for (const char *c = line; c < end; c++) if (*c == ' ') words++, last = c + 1;
            size_t bytes = strtoul(last, NULL, 10);
            if (at + length + bytes + 2 > size) break;
            message(conn, line, end + 2, bytes, words == (line[0] == 'H' ? 6 : 5));
            length += bytes + 2;
        } else if (!memcmp(line, "PING", 4)) {
            say(conn, PONG, sizeof PONG - 1);
        } else if (!memcmp(line, "PONG", 4)) {
            if (conn->state == READY) accepted_next();
            else if (conn->publishes || !strcmp(options.protocol, "nats")) subscribed(conn);
        } else if (!memcmp(line, "-ERR", 4)) {
            fail("the server reports an error");
        }
        at += length;
    }
    return at;
}

const struct protocol nats = {greet_core, take, publish_core};
const struct protocol kv = {greet_kv, take, publish_kv};
