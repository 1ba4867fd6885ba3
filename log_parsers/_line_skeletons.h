/* What the loops of `_line_tables.c` do to the bytes of lines: leave some out, zero digits, hash the rest.

   Sixteen bytes at a time where the processor can shuffle them (asked for when the module is loaded), else
   one by one; both give the same bytes. */

#ifndef RERAIL_LINE_SKELETONS_H
#define RERAIL_LINE_SKELETONS_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(RERAIL_PLAIN_LOOPS)
#define RERAIL_SHUFFLES 1
#include <immintrin.h>
#endif

#define SLACK 32 /* bytes behind a skeleton that may be written to */

static unsigned char kept_letter[256]; /* 0 for what a skeleton leaves out */

/* Where a frame and its skeleton end, in the piece and among the skeletons. */
typedef struct {
    int64_t end, skeleton;
} Frame;

static inline uint64_t eight(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline uint64_t four(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Two lanes of multiply and fold, as in wyhash, with keys of their own. */
static inline void hash_of(const uint64_t *keys, const unsigned char *text, int64_t size, uint64_t *low,
                           uint64_t *high) {
    uint64_t a = keys[0] ^ (uint64_t)size, b = keys[1] + (uint64_t)size, first, second;
    const unsigned char *last = text + size - 16;
    for (; text < last; text += 16) {
        first = eight(text), second = eight(text + 8);
        a = mixed(first ^ keys[2] ^ a, second ^ keys[3]);
        b = mixed(first ^ keys[1], second ^ keys[0] ^ b);
    }
    if (size >= 16) {
        first = eight(last), second = eight(last + 8);
    } else if (size >= 8) {
        first = eight(text), second = eight(text + size - 8);
    } else if (size >= 4) {
        first = four(text) | four(text + size - 4) << 32, second = 0;
    } else {
        first = size ? text[0] | (uint64_t)text[size >> 1] << 8 | (uint64_t)text[size - 1] << 16 : 0;
        second = 0;
    }
    *low = mixed(mixed(first ^ keys[2] ^ a, second ^ keys[3]), keys[1] | 1);
    *high = mixed(mixed(first ^ keys[1], second ^ keys[0] ^ b), keys[3] | 1);
}

/* Write the bytes with every digit as 0; `out` may be written to up to 16 bytes behind. */
static inline void zeroed(const unsigned char *text, int64_t size, const unsigned char *stop, unsigned char *out) {
    int64_t at = 0;
#ifdef RERAIL_SHUFFLES
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
    for (; at < size && stop - (text + at) >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text + at)), above = _mm_sub_epi8(bytes, zero);
        __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(above, nine), above);
        bytes = _mm_or_si128(_mm_and_si128(digit, zero), _mm_andnot_si128(digit, bytes));
        _mm_storeu_si128((__m128i *)(out + at), bytes);
    }
#endif
    (void)stop;
    for (; at < size; at++)
        out[at] = (unsigned char)((unsigned char)(text[at] - '0') < 10 ? '0' : text[at]);
}

/* Write the skeletons of the frames of a part of a piece, ends included, and where they end.

   Returns how many frames there are, at most one for each byte. `length` is that of the skeletons so far. */
static int64_t plain_skeletons(const unsigned char *text, int64_t from, int64_t to, int returns, unsigned char *out,
                               int64_t *length, Frame *frames) {
    int64_t count = 0, size = *length;
    for (int64_t at = from; at < to; at++) {
        unsigned char letter = text[at];
        if (letter == '\n' || (letter == '\r' && returns))
            frames[count++] = (Frame){at, size};
        out[size] = letter;
        size += kept_letter[letter];
    }
    *length = size;
    return count;
}

#ifdef RERAIL_SHUFFLES
static unsigned char kept_places[256][8]; /* by the bits of eight bytes that are kept, their places */

__attribute__((target("ssse3,popcnt"))) static int64_t shuffled_skeletons(const unsigned char *text, int64_t from,
                                                                          int64_t to, int returns, unsigned char *out,
                                                                          int64_t *length, Frame *frames) {
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9), small = _mm_set1_epi8('a');
    const __m128i five = _mm_set1_epi8(5), feed = _mm_set1_epi8('\n'), turn = _mm_set1_epi8(returns ? '\r' : '\n');
    const __m128i upper = _mm_set1_epi8(8);
    int64_t count = 0, size = *length, at = from;
    for (; to - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text + at));
        __m128i digit = _mm_sub_epi8(bytes, zero), hex = _mm_sub_epi8(bytes, small);
        __m128i gone = _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(digit, nine), digit),
                                    _mm_cmpeq_epi8(_mm_min_epu8(hex, five), hex));
        gone = _mm_or_si128(gone, _mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        unsigned kept = ~(unsigned)_mm_movemask_epi8(gone) & 0xffff;
        unsigned ends = (unsigned)_mm_movemask_epi8(
            _mm_or_si128(_mm_cmpeq_epi8(bytes, feed), _mm_cmpeq_epi8(bytes, turn)));
        for (; ends; ends &= ends - 1) {
            int place = __builtin_ctz(ends);
            frames[count++] = (Frame){at + place, size + __builtin_popcount(kept & ((1u << place) - 1))};
        }
        __m128i low = _mm_loadl_epi64((const __m128i *)kept_places[kept & 255]);
        __m128i high = _mm_add_epi8(_mm_loadl_epi64((const __m128i *)kept_places[kept >> 8]), upper);
        _mm_storel_epi64((__m128i *)(out + size), _mm_shuffle_epi8(bytes, low));
        size += __builtin_popcount(kept & 255);
        _mm_storel_epi64((__m128i *)(out + size), _mm_shuffle_epi8(bytes, high));
        size += __builtin_popcount(kept >> 8);
    }
    *length = size;
    return count + plain_skeletons(text, at, to, returns, out, length, frames + count);
}
#endif

typedef int64_t (*Skeletons)(const unsigned char *, int64_t, int64_t, int, unsigned char *, int64_t *, Frame *);

static Skeletons skeletons = plain_skeletons;

static void choose_loops(void) {
    for (int letter = 0; letter < 256; letter++) {
        int out = letter == 0 || (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
        kept_letter[letter] = (unsigned char)!out;
    }
#ifdef RERAIL_SHUFFLES
    for (int bits = 0; bits < 256; bits++) {
        int count = 0;
        for (int bit = 0; bit < 8; bit++)
            if (bits >> bit & 1)
                kept_places[bits][count++] = (unsigned char)bit;
    }
    __builtin_cpu_init();
    if (__builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt"))
        skeletons = shuffled_skeletons;
#endif
}

#endif
