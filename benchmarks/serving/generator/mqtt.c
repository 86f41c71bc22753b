/* MQTT 3.1.1, as much of it as a subscriber and a publisher of QoS 1 need. */
#include <stdio.h>
#include <string.h>
#include "load.h"

static size_t put_string(uint8_t *out, const char *text) {
    size_t size = strlen(text);
    out[0] = (uint8_t)(size >> 8);
    out[1] = (uint8_t)size;
    memcpy(out + 2, text, size);
    return size + 2;
}

/* Moves a body of `size` bytes behind a fixed header, and returns the size of the packet. */
static size_t with_header(uint8_t *out, uint8_t first, size_t size) {
    size_t header = size < 128 ? 2 : 3;
    memmove(out + header, out, size);
    out[0] = first;
    out[1] = (uint8_t)(size < 128 ? size : (size & 127) | 128);
    if (size >= 128) out[2] = (uint8_t)(size >> 7);
    return header + size;
}

static size_t connect_packet(uint8_t *out, const char *id, int clean) {
    size_t at = put_string(out, "MQTT");
    out[at++] = 4;
    out[at++] = clean ? 2 : 0;
    out[at++] = 0; /* no keep-alive: the clients of a benchmark do not go away silently */
    out[at++] = 0;
    at += put_string(out + at, id);
    return with_header(out, 0x10, at);
}

static size_t publish(uint8_t *out, uint64_t version, int confirm) {
    (void)confirm; /* QoS 1 always is */
    char topic[64];
    uint16_t id = (uint16_t)(1 + version % 65535);
    topic_name(topic_of_version(version), topic, sizeof topic);
    size_t at = put_string(out, topic);
    out[at++] = (uint8_t)(id >> 8);
    out[at++] = (uint8_t)id;
    at += (size_t)sprintf((char *)out + at, "%llu", (unsigned long long)version);
    return with_header(out, options.retain ? 0x33 : 0x32, at);
}

static void greet(struct conn *conn) {
    uint8_t out[256];
    char id[64];
    if (conn->publishes) snprintf(id, sizeof id, "%s-publisher", options.prefix);
    else snprintf(id, sizeof id, "%s-%u", options.prefix, conn->number);
    say(conn, out, connect_packet(out, id, conn->publishes || options.clean));
}

static void subscribe(struct conn *conn) {
    uint8_t out[2048];
    size_t at = 0;
    out[at++] = 0;
    out[at++] = 1;
    for (int i = 0; i < options.per_client; i++) {
        char topic[64];
        topic_name(topic_of(conn->number, i), topic, sizeof topic);
        at += put_string(out + at, topic);
        out[at++] = 1;
    }
    conn->state = SUBSCRIBING;
    say(conn, out, with_header(out, 0x82, at));
}

/* The version in the payload; 0 if it is none ("?", for unknown). */
static uint64_t version_in(const uint8_t *text, size_t size) {
    uint64_t version = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        version = version * 10 + (uint64_t)(text[i] - '0');
    }
    return version;
}

static size_t take(struct conn *conn, const uint8_t *data, size_t size) {
    uint8_t acks[MESSAGE_BYTES];
    size_t at = 0, acked = 0;
    while (size - at >= 2) {
        size_t length = data[at + 1] & 127, body = at + 2;
        if (data[at + 1] & 128) {
            if (size - at < 3) break;
            length |= (size_t)data[at + 2] << 7;
            body++;
        }
        if (body + length > size) break;
        uint8_t kind = data[at] >> 4;
        if (kind == 2) {
            if (data[body + 1] == 3) { /* the server is busy */
                refused(conn);
                return size;
            }
            if (data[body + 1] != 0) fail("a CONNECT was refused");
            int remembered = data[body] & 1 && conn->known;
            if (conn->publishes || remembered) subscribed(conn);
            else subscribe(conn);
        } else if (kind == 9) {
            if (data[body + 2] == 0x80) fail("a SUBSCRIBE was refused");
            subscribed(conn);
        } else if (kind == 4) {
            accepted_id((uint16_t)(data[body] << 8 | data[body + 1]));
        } else if (kind == 3) {
            if ((data[at] & 6) != 2) fail("a PUBLISH that is not QoS 1");
            size_t topic = (size_t)data[body] << 8 | data[body + 1];
            const uint8_t *id = data + body + 2 + topic;
            acks[acked] = 0x40;
            acks[acked + 1] = 2;
            memcpy(acks + acked + 2, id, 2);
            acked += 4;
            received(conn, version_in(id + 2, length - topic - 4));
        }
        at = body + length;
    }
    if (acked) say(conn, acks, acked);
    return at;
}

const struct protocol mqtt = {greet, take, publish};
