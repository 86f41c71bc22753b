/* Redis, in two ways. Pub/sub: a channel per topic. Streams: a stream per topic, whose entries have
   the version for an id; a client reads on after the last entry that it has, of all its streams at
   once, and each XREAD so says what has been received. The publisher may keep only the last entry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"

#define ENTRIES_AT_ONCE "50" /* of each stream */

static void greet(struct conn *conn) {
    static const char PING[] = "PING\r\n";
    say(conn, PING, sizeof PING - 1);
}

static void subscribe(struct conn *conn) {
    char out[2048];
    size_t at = (size_t)sprintf(out, "SUBSCRIBE");
    for (int i = 0; i < options.per_client; i++)
        at += (size_t)sprintf(out + at, " %s:o%d", options.app, topic_of(conn->number, i));
    conn->state = SUBSCRIBING;
    say(conn, out, at + (size_t)sprintf(out + at, "\r\n"));
}

static void read_on(struct conn *conn) {
    char out[2048];
    size_t at = (size_t)sprintf(out, "XREAD COUNT " ENTRIES_AT_ONCE " BLOCK 0 STREAMS");
    for (int i = 0; i < options.per_client; i++)
        at += (size_t)sprintf(out + at, " %s:o%d", options.app, topic_of(conn->number, i));
    for (int i = 0; i < options.per_client; i++)
        at += (size_t)sprintf(out + at, " %llu", (unsigned long long)conn->latest[i]);
    say(conn, out, at + (size_t)sprintf(out + at, "\r\n"));
}

static size_t publish_message(uint8_t *out, uint64_t version, int confirm) {
    (void)confirm; /* every command is answered */
    return (size_t)sprintf((char *)out, "PUBLISH %s:o%d %llu\r\n", options.app,
                           topic_of_version(version), (unsigned long long)version);
}

static size_t publish_entry(uint8_t *out, uint64_t version, int confirm) {
    (void)confirm;
    return (size_t)sprintf((char *)out, "XADD %s:o%d %s%llu-0 v -\r\n", options.app,
                           topic_of_version(version), options.retain ? "MAXLEN 1 " : "",
                           (unsigned long long)version);
}

/* A reply as a flat list of its strings and numbers; returns its size, 0 if it is not whole. */
struct part {
    const char *text;
    size_t size;
};

static size_t parts_of(const char *data, size_t size, struct part *parts, size_t room, size_t *count) {
    size_t at = 0;
    *count = 0;
    for (long left = 1; left; left--) {
        const char *end = memmem(data + at, size - at, "\r\n", 2);
        if (end == NULL) return 0;
        struct part part = {data + at + 1, (size_t)(end - data) - at - 1};
        char kind = data[at];
        at = (size_t)(end - data) + 2;
        if (kind == '*') {
            left += atol(part.text) > 0 ? atol(part.text) : 0;
            continue;
        }
        if (kind == '$') {
            part = (struct part){end + 2, strtoul(part.text, NULL, 10)};
            at += part.size + 2;
            if (at > size) return 0;
        }
        if (*count == room) fail("a reply with too many parts");
        parts[(*count)++] = part;
    }
    return at;
}

static int is(const struct part *part, const char *text) {
    return part->size == strlen(text) && !memcmp(part->text, text, part->size);
}

static int starts(const struct part *part, const char *text) {
    return part->size >= strlen(text) && !memcmp(part->text, text, strlen(text));
}

static void heard(struct conn *conn, const struct part *parts, size_t count) {
    int reads = !strcmp(options.protocol, "streams");
    if (starts(parts, "LOADING")) {
        refused(conn);
    } else if (conn->state == OPENING && is(parts, "PONG")) {
        if (!conn->publishes && !reads) subscribe(conn);
        else subscribed(conn);
        if (!conn->publishes && reads) read_on(conn);
    } else if (conn->publishes) { /* an entry that is said again is refused: it is there already */
        if (starts(parts, "ERR") && !memmem(parts->text, parts->size, "equal or smaller", 16))
            fail("the server reports an error");
        accepted_next();
    } else if (is(parts, "message")) {
        received(conn, strtoull(parts[2].text, NULL, 10));
    } else if (is(parts, "subscribe")) {
        if (++conn->confirmed == (uint32_t)options.per_client) subscribed(conn);
    } else if (reads) { /* of each stream its name, then an id, "v" and "-" of each entry */
        for (size_t i = 1; i < count; i++)
            if (is(&parts[i], "v")) received(conn, strtoull(parts[i - 1].text, NULL, 10));
        read_on(conn);
    } else {
        fprintf(stderr, "load: %.*s\n", (int)parts->size, parts->text);
        fail("an answer that was not expected");
    }
}

static size_t take(struct conn *conn, const uint8_t *data, size_t size) {
    static struct part parts[8192];
    size_t at = 0, count = 0, length;
    while (at < size && conn->state != CLOSED
           && (length = parts_of((const char *)data + at, size - at, parts, 8192, &count))) {
        heard(conn, parts, count);
        at += length;
    }
    return at;
}

const struct protocol redis = {greet, take, publish_message};
const struct protocol streams = {greet, take, publish_entry};
