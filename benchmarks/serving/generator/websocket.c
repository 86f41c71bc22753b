/* Roskva's own protocol in MessagePack over WebSocket: one session that acks what it is told after
   50 ms, in one message, with the digest that the server last showed, as the client library does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"

#define FRAME_BYTES 4096

static const char UPGRADE[] =
    "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: roskva.v1.msgpack\r\n\r\n";

/* Reading MessagePack: `at` moves on; beyond the end everything is nil. */
struct reader {
    const uint8_t *at, *end;
};

static uint64_t big_endian(struct reader *in, size_t size) {
    uint64_t value = 0;
    for (; size && in->at < in->end; size--) value = value << 8 | *in->at++;
    return value;
}

static uint64_t read_uint(struct reader *in) {
    uint8_t first = (uint8_t)big_endian(in, 1);
    return first < 0x80 ? first : first >= 0xcc && first <= 0xcf
        ? big_endian(in, (size_t)1 << (first - 0xcc)) : 0;
}

/* The number of members of an array or map. */
static size_t read_count(struct reader *in) {
    uint8_t first = (uint8_t)big_endian(in, 1);
    return first < 0xa0 ? first & 15 : first == 0xdc || first == 0xde ? big_endian(in, 2) : 0;
}

static size_t read_string(struct reader *in, const uint8_t **text) {
    uint8_t first = (uint8_t)big_endian(in, 1);
    size_t size = (first & 0xe0) == 0xa0 ? first & 31 : first == 0xd9 ? big_endian(in, 1) : 0;
    *text = in->at;
    in->at += size;
    return size;
}

static void skip(struct reader *in) {
    uint8_t first = *in->at;
    if ((first & 0xf0) == 0x80 || first == 0xde) {
        for (size_t n = 2 * read_count(in); n; n--) skip(in);
    } else if ((first & 0xf0) == 0x90 || first == 0xdc) {
        for (size_t n = read_count(in); n; n--) skip(in);
    } else if ((first & 0xe0) == 0xa0) {
        in->at += 1 + (first & 31);
    } else if (first >= 0xc4 && first <= 0xc6) {
        in->at++;
        size_t size = big_endian(in, (size_t)1 << (first - 0xc4));
        in->at += size;
    } else if (first >= 0xd9 && first <= 0xdb) {
        in->at++;
        size_t size = big_endian(in, (size_t)1 << (first - 0xd9));
        in->at += size;
    } else if (first >= 0xcc && first <= 0xcf) {
        in->at += 1 + ((size_t)1 << (first - 0xcc));
    } else {
        in->at++;
    }
}

/* Writing. */
static size_t put(uint8_t *out, const char *text) {
    size_t size = strlen(text);
    out[0] = (uint8_t)(0xa0 | size);
    memcpy(out + 1, text, size);
    return size + 1;
}

static size_t put_uint(uint8_t *out, uint64_t value) {
    out[0] = 0xcf;
    for (int i = 0; i < 8; i++) out[1 + i] = (uint8_t)(value >> (56 - 8 * i));
    return 9;
}

/* A frame with a mask of zeros, which changes nothing. */
static void say_frame(struct conn *conn, uint8_t first, const uint8_t *body, size_t size) {
    uint8_t out[FRAME_BYTES + 16];
    size_t at = 2;
    out[0] = first;
    out[1] = (uint8_t)(0x80 | (size < 126 ? size : 126));
    if (size >= 126) {
        out[at++] = (uint8_t)(size >> 8);
        out[at++] = (uint8_t)size;
    }
    memset(out + at, 0, 4);
    memcpy(out + at + 4, body, size);
    say(conn, out, at + 4 + size);
}

/* What every message of a session begins with; `parts` more fields follow. */
static size_t begin(struct conn *conn, uint8_t *out, int parts) {
    size_t at = 0;
    out[at++] = (uint8_t)(0x85 + parts);
    at += put(out + at, "type");
    at += put(out + at, "client");
    at += put(out + at, "v");
    at += put(out + at, "1.0");
    at += put(out + at, "session");
    at += put_uint(out + at, conn->session);
    at += put(out + at, "number");
    at += put_uint(out + at, ++conn->messages);
    at += put(out + at, "digest");
    if (conn->state == READY) {
        out[at++] = 0x92;
        at += put_uint(out + at, conn->digest_count);
        at += put_uint(out + at, conn->digest_sum);
    } else {
        out[at++] = 0xc0;
    }
    return at;
}

static void greet(struct conn *conn) {
    say(conn, UPGRADE, sizeof UPGRADE - 1);
}

static void hello(struct conn *conn) {
    uint8_t out[256];
    size_t at = 0;
    out[at++] = 0x84;
    at += put(out + at, "type");
    at += put(out + at, "hello");
    at += put(out + at, "v");
    at += put(out + at, "1.0");
    at += put(out + at, "nonce");
    memcpy(out + at, "\xc4\x08noncence", 10);
    at += 10;
    at += put(out + at, "app");
    at += put(out + at, options.app);
    say_frame(conn, 0x82, out, at);
}

static void operate(struct conn *conn) {
    uint8_t out[FRAME_BYTES];
    size_t at = begin(conn, out, 1);
    at += put(out + at, "operations");
    out[at++] = (uint8_t)(0x90 | options.per_client);
    for (int i = 0; i < options.per_client; i++) {
        char topic[64];
        topic_name(topic_of(conn->number, i), topic, sizeof topic);
        out[at++] = 0x92;
        at += put(out + at, topic);
        out[at++] = 0xc3;
    }
    conn->state = SUBSCRIBING;
    say_frame(conn, 0x82, out, at);
}

void websocket_ack(struct conn *conn) {
    uint8_t out[FRAME_BYTES];
    size_t at = begin(conn, out, 1);
    at += put(out + at, "acks");
    out[at++] = (uint8_t)(0x90 | conn->acks);
    memcpy(out + at, conn->ack_bytes, conn->ack_size);
    at += conn->ack_size;
    free(conn->ack_bytes);
    conn->ack_bytes = NULL;
    conn->ack_size = 0;
    conn->acks = 0;
    say_frame(conn, 0x82, out, at);
}

/* Kept as it came: an array of the object, the version or nil, and the epoch. */
static void to_ack(struct conn *conn, const uint8_t *parts, size_t size) {
    if (conn->acks >= options.per_client) conn->acks = 0, conn->ack_size = 0; /* only the newest */
    if (conn->ack_bytes == NULL) conn->ack_bytes = malloc(128 * (size_t)options.per_client);
    conn->ack_bytes[conn->ack_size++] = 0x93;
    memcpy(conn->ack_bytes + conn->ack_size, parts, size);
    conn->ack_size += (uint32_t)size;
    conn->acks++;
    ack_later(conn);
}

static void notifications(struct conn *conn, struct reader *in) {
    for (size_t n = read_count(in); n; n--) {
        size_t parts = read_count(in);
        const uint8_t *start = in->at, *text;
        read_string(in, &text);
        uint64_t version = read_uint(in);
        skip(in);
        to_ack(conn, start, (size_t)(in->at - start));
        for (size_t i = 3; i < parts; i++) skip(in);
        received(conn, version);
    }
}

static void message(struct conn *conn, const uint8_t *data, size_t size) {
    struct reader in = {data, data + size};
    for (size_t n = read_count(&in); n; n--) {
        const uint8_t *name;
        size_t length = read_string(&in, &name);
        if (length == 13 && !memcmp(name, "notifications", 13)) {
            notifications(conn, &in);
        } else if (length == 7 && !memcmp(name, "session", 7)) {
            conn->session = read_uint(&in);
        } else if (length == 6 && !memcmp(name, "digest", 6)) {
            read_count(&in);
            conn->digest_count = read_uint(&in);
            conn->digest_sum = read_uint(&in);
            skip(&in);
        } else if (length == 5 && !memcmp(name, "error", 5)) {
            fail("the server reports an error");
        } else {
            skip(&in);
        }
    }
    if (conn->state == OPENING && conn->session) operate(conn);
    if (conn->state == SUBSCRIBING && conn->digest_count == (uint64_t)options.per_client)
        subscribed(conn);
}

static size_t take(struct conn *conn, const uint8_t *data, size_t size) {
    size_t at = 0;
    if (conn->state == OPENING && size >= 4 && data[0] == 'H') {
        const uint8_t *end = memmem(data, size, "\r\n\r\n", 4);
        if (end == NULL) return 0;
        if (memcmp(data, "HTTP/1.1 101", 12)) fail("the upgrade to WebSocket was refused");
        hello(conn);
        at = (size_t)(end - data) + 4;
    }
    while (size - at >= 2) {
        size_t length = data[at + 1], body = at + 2;
        if (length == 126) {
            if (size - at < 4) break;
            length = (size_t)data[at + 2] << 8 | data[at + 3];
            body += 2;
        }
        if (body + length > size) break;
        if (data[at] == 0x89) say_frame(conn, 0x8a, data + body, length);
        else if (data[at] == 0x82) message(conn, data + body, length);
        else fail("the server closed a WebSocket");
        at = body + length;
    }
    return at;
}

const struct protocol websocket = {greet, take, NULL}; /* published over MQTT */
