/* Texts that lie in a block, and dictionaries of them. Nothing is read at or behind the end of a text. */

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *begin;
    const char *end; /* behind the last character */
} Text;

static inline Py_ssize_t length(Text text) { return text.end - text.begin; }

static inline bool same(Text one, Text other)
{
    return length(one) == length(other) && memcmp(one.begin, other.begin, length(one)) == 0;
}

static inline bool begins_with(Text text, Text beginning)
{
    return length(text) >= length(beginning) && memcmp(text.begin, beginning.begin, length(beginning)) == 0;
}

static inline bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/* The first such letter from `at` on; NULL where there is none. */
static inline const char *next(char letter, const char *at, const char *end)
{
    return at == end ? NULL : memchr(at, letter, end - at);
}

static inline Text text_of(const Py_buffer *buffer)
{
    return (Text){buffer->buf, (const char *)buffer->buf + buffer->len};
}

/* ---------------------------------------------------------------------------------------------------- dictionaries */

/* A text that was met, and the one that followed it last: the texts of rows come in cycles. */
typedef struct {
    Text text;
    uint64_t hash;
    int32_t successor;
} Word;

/* Distinct texts, in the order they were met. */
typedef struct {
    Word *words;
    int32_t count;
    int32_t latest;
    int32_t *slots; /* words by their hashes, -1 for none: at least twice as many as there are words */
    uint32_t mask;
} Dictionary;

#define FIRST_SLOTS 64
#define MOST_PROBES 128 /* of texts that were made to collide there may be so many: a slower reader is proof to them */

static inline uint64_t hash_of(Text text)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ (uint64_t)length(text), part;
    const char *at = text.begin;
    for (; text.end - at >= 8; at += 8) {
        memcpy(&part, at, 8);
        hash = (hash ^ part) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    part = 0;
    memcpy(&part, at, text.end - at);
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

/* Twice as many slots, or the first ones; false where there is no memory for them. */
static inline bool grow(Dictionary *dictionary)
{
    const uint32_t size = dictionary->slots == NULL ? FIRST_SLOTS : 2 * (dictionary->mask + 1);
    Word *words = PyMem_RawRealloc(dictionary->words, size / 2 * sizeof *words);
    if (words == NULL)
        return false;
    dictionary->words = words;
    int32_t *slots = PyMem_RawMalloc(size * sizeof *slots);
    if (slots == NULL)
        return false;
    memset(slots, -1, size * sizeof *slots);
    for (int32_t code = 0; code < dictionary->count; code++) {
        uint32_t at = (uint32_t)words[code].hash & (size - 1);
        while (slots[at] >= 0)
            at = (at + 1) & (size - 1);
        slots[at] = code;
    }
    PyMem_RawFree(dictionary->slots);
    dictionary->slots = slots;
    dictionary->mask = size - 1;
    return true;
}

/* The code of a text, which is put to the others if it is new and `may_be_new`; -1 where it is not among them. */
static inline int32_t code_of(Dictionary *dictionary, Text text, bool (*may_be_new)(Text))
{
    if ((dictionary->slots == NULL || 2 * (uint32_t)dictionary->count >= dictionary->mask) && !grow(dictionary))
        return -1;
    const uint64_t hash = hash_of(text);
    uint32_t at = (uint32_t)hash & dictionary->mask;
    for (int probe = 0; probe < MOST_PROBES; probe++, at = (at + 1) & dictionary->mask) {
        int32_t code = dictionary->slots[at];
        if (code >= 0 && !(dictionary->words[code].hash == hash && same(dictionary->words[code].text, text)))
            continue;
        if (code < 0) {
            if (!may_be_new(text))
                return -1;
            code = dictionary->slots[at] = dictionary->count++;
            dictionary->words[code] = (Word){text, hash, code};
        }
        dictionary->words[dictionary->latest].successor = code;
        return dictionary->latest = code;
    }
    return -1;
}

/* The text that is expected next, if it stands at `at` with a quote behind it: its code, else -1. */
static inline int32_t expected_at(Dictionary *dictionary, const char *at, const char *end)
{
    if (dictionary->count == 0)
        return -1;
    const int32_t code = dictionary->words[dictionary->latest].successor;
    const Text expected = dictionary->words[code].text;
    const char *close = at + length(expected);
    if (end - at <= length(expected) || *close != '"' || !begins_with((Text){at, end}, expected))
        return -1;
    if (end - close > 1 && close[1] == '"') /* a quote inside a longer text */
        return -1;
    return dictionary->latest = code;
}

static inline void forget(Dictionary *dictionary)
{
    PyMem_RawFree(dictionary->words);
    PyMem_RawFree(dictionary->slots);
}
