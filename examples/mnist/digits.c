/*
 * digits.c - draws digits with a pen that is never quite the same.
 *
 * Each class has a few ways of writing it: strokes in a box of 100 x 100, x to the right and y
 * down. A digit is one of them, its strokes shaken, the whole turned, slanted, stretched, bent and
 * shifted, drawn with a pen of some width, on paper that is not clean.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "digits.h"

#include <math.h>
#include <string.h>

#include "rng.h"

enum { STROKES_MAX = 4, WAYS_MAX = 4, ARC_SEGMENTS = 14 };

/* A path through `points` points, or, with none, a piece of an ellipse. */
struct stroke {
    uint8_t points;
    int16_t at[8]; /* path: x, y, ...; ellipse: centre x, y, radius x, y, degrees from, to */
};

struct glyph {
    struct stroke strokes[STROKES_MAX]; /* ends at an empty one */
};

/* clang-format off */
#define PATH2(...) {.points = 2, .at = {__VA_ARGS__}}
#define PATH3(...) {.points = 3, .at = {__VA_ARGS__}}
#define PATH4(...) {.points = 4, .at = {__VA_ARGS__}}
#define ARC(...) {.points = 0, .at = {__VA_ARGS__}}

static const struct glyph glyphs[CLASSES][WAYS_MAX] = {
    {{{ARC(50, 50, 30, 46, -90, 270)}},
     {{ARC(50, 50, 22, 44, -110, 265)}},
     {{ARC(50, 50, 36, 40, -60, 290)}},
     {{ARC(50, 50, 30, 46, -90, 270), PATH2(68, 22, 32, 78)}}},
    {{{PATH2(50, 4, 50, 96)}},
     {{PATH3(30, 26, 52, 4, 52, 96)}},
     {{PATH3(32, 24, 50, 4, 50, 95), PATH2(30, 95, 70, 95)}},
     {{PATH3(18, 40, 56, 4, 56, 96)}}},
    {{{ARC(48, 30, 29, 26, -170, 30), PATH3(73, 43, 20, 95, 82, 95)}},
     {{PATH4(20, 26, 50, 4, 78, 28, 22, 95), PATH2(22, 95, 82, 92)}},
     {{ARC(48, 28, 28, 24, -150, 60), PATH2(62, 49, 30, 86), ARC(28, 88, 10, 8, 0, 340),
       PATH2(36, 88, 82, 92)}},
     {{ARC(46, 30, 32, 26, -190, 20), ARC(40, 40, 38, 56, 0, 100), PATH2(20, 95, 84, 95)}}},
    {{{ARC(44, 27, 29, 23, -150, 90), ARC(44, 73, 33, 23, -90, 150)}},
     {{PATH3(20, 5, 78, 5, 44, 42), ARC(44, 69, 33, 27, -90, 150)}},
     {{ARC(40, 27, 36, 23, -120, 80), ARC(40, 73, 38, 22, -80, 125)}},
     {{PATH4(24, 6, 74, 14, 44, 46, 78, 60), PATH3(78, 60, 68, 92, 22, 94)}}},
    {{{PATH4(62, 96, 62, 4, 14, 66, 88, 66)}},
     {{PATH3(26, 6, 20, 52, 80, 50), PATH2(72, 10, 68, 96)}},
     {{PATH3(40, 4, 16, 62, 86, 60), PATH2(60, 38, 58, 96)}},
     {{ARC(50, 14, 30, 36, 80, 180), PATH2(52, 50, 78, 46), PATH2(80, 6, 74, 96)}}},
    {{{PATH3(78, 5, 30, 5, 27, 45), ARC(46, 67, 31, 28, -130, 140)}},
     {{PATH2(80, 8, 34, 8), PATH2(34, 8, 24, 46), ARC(42, 70, 36, 25, -115, 120)}},
     {{ARC(56, 26, 30, 22, -40, -210), ARC(44, 70, 32, 25, -100, 140)}},
     {{PATH4(74, 6, 34, 6, 30, 44, 66, 50), PATH3(66, 50, 76, 82, 24, 94)}}},
    {{{PATH3(68, 4, 36, 34, 25, 70), ARC(50, 71, 25, 24, -180, 180)}},
     {{ARC(66, 56, 42, 52, -110, -190), ARC(48, 72, 26, 22, -170, 190)}},
     {{PATH2(58, 4, 26, 66), ARC(47, 74, 22, 21, -160, 200)}},
     {{ARC(60, 50, 36, 46, -50, -200), ARC(50, 72, 24, 20, 150, 440)}}},
    {{{PATH3(18, 6, 82, 6, 40, 96)}},
     {{PATH3(16, 8, 80, 6, 46, 96), PATH2(34, 50, 76, 48)}},
     {{PATH4(18, 24, 20, 6, 82, 8, 52, 96)}},
     {{PATH2(18, 10, 78, 8), ARC(96, 70, 40, 68, -120, -200)}}},
    {{{ARC(50, 27, 22, 22, -90, 270), ARC(50, 73, 28, 24, -90, 270)}},
     {{ARC(50, 28, 28, 24, -80, 280), ARC(50, 74, 24, 21, -100, 260)}},
     {{PATH4(74, 16, 28, 76, 60, 94, 74, 78), PATH4(74, 78, 30, 24, 48, 6, 74, 16)}},
     {{ARC(46, 27, 24, 22, -30, 300), PATH2(60, 42, 32, 62), ARC(50, 74, 26, 21, -160, 200)}}},
    {{{ARC(48, 29, 26, 25, 0, 360), PATH2(74, 28, 68, 96)}},
     {{ARC(48, 29, 25, 24, -20, 340), ARC(34, 40, 40, 54, -20, 85)}},
     {{ARC(46, 28, 28, 22, -40, 320), PATH3(72, 14, 74, 60, 50, 96)}},
     {{ARC(50, 30, 24, 26, -60, 300), PATH3(74, 22, 72, 90, 30, 94)}}},
};
/* clang-format on */

/* How one digit is written: from the box of 100 x 100 to pixels. */
struct pen {
    float xx, xy, yx, yy; /* turn, slant and size */
    float x, y;           /* centre of the digit */
    float bend, wave, phase;
    float radius;
};

static struct pen
pen_choose(struct rng *rng)
{
    const float turn = rng_between(rng, -0.20f, 0.20f);
    const float slant = rng_between(rng, -0.25f, 0.25f);
    const float width = rng_between(rng, 0.16f, 0.22f);
    const float height = rng_between(rng, 0.18f, 0.22f);
    const float sine = sinf(turn);
    const float cosine = cosf(turn);

    return (struct pen){
        .xx = cosine * width,
        .xy = (cosine * slant - sine) * height,
        .yx = sine * width,
        .yy = (sine * slant + cosine) * height,
        .x = 14.0f + rng_between(rng, -1.5f, 1.5f),
        .y = 14.0f + rng_between(rng, -1.5f, 1.5f),
        .bend = rng_between(rng, -0.8f, 0.8f),
        .wave = rng_between(rng, 0.15f, 0.40f),
        .phase = rng_between(rng, 0.0f, 6.28f),
        .radius = rng_between(rng, 0.8f, 1.7f),
    };
}

static void
pen_place(const struct pen *pen, float box_x, float box_y, float point[2])
{
    const float x = box_x - 50.0f;
    const float y = box_y - 50.0f;

    point[0] = pen->x + pen->xx * x + pen->xy * y;
    point[1] = pen->y + pen->yx * x + pen->yy * y;
    point[0] += pen->bend * sinf(pen->wave * point[1] + pen->phase);
}

static int
pixel_clamp(float position)
{
    return position < 0.0f ? 0 : position > IMAGE_SIDE - 1 ? IMAGE_SIDE - 1 : (int)position;
}

/* Inks every pixel by how far it lies from the line between two points. */
static void
draw_line(float *ink, const float from[2], const float to[2], float radius)
{
    const float reach = radius + 1.0f;
    const int left = pixel_clamp(fminf(from[0], to[0]) - reach);
    const int right = pixel_clamp(fmaxf(from[0], to[0]) + reach);
    const int top = pixel_clamp(fminf(from[1], to[1]) - reach);
    const int bottom = pixel_clamp(fmaxf(from[1], to[1]) + reach);
    const float dx = to[0] - from[0];
    const float dy = to[1] - from[1];
    const float length2 = dx * dx + dy * dy + 1e-6f;

    for (int row = top; row <= bottom; row++) {
        for (int column = left; column <= right; column++) {
            const float px = (float)column + 0.5f - from[0];
            const float py = (float)row + 0.5f - from[1];
            const float along = fminf(fmaxf((px * dx + py * dy) / length2, 0.0f), 1.0f);
            const float off_x = px - along * dx;
            const float off_y = py - along * dy;
            const float depth = radius + 0.5f - sqrtf(off_x * off_x + off_y * off_y);
            float *pixel = &ink[row * IMAGE_SIDE + column];

            *pixel = fmaxf(*pixel, fminf(depth, 1.0f));
        }
    }
}

static void
draw_path(float *ink, const struct stroke *stroke, const struct pen *pen, struct rng *rng)
{
    float last[2];
    float next[2];

    for (uint32_t i = 0; i < stroke->points; i++) {
        const float x = (float)stroke->at[2 * i] + rng_between(rng, -7.0f, 7.0f);
        const float y = (float)stroke->at[2 * i + 1] + rng_between(rng, -7.0f, 7.0f);

        pen_place(pen, x, y, next);
        if (i > 0) {
            draw_line(ink, last, next, pen->radius);
        }
        memcpy(last, next, sizeof(last));
    }
}

static void
draw_arc(float *ink, const struct stroke *stroke, const struct pen *pen, struct rng *rng)
{
    const float degree = 0.017453293f;
    const float x = (float)stroke->at[0] + rng_between(rng, -5.0f, 5.0f);
    const float y = (float)stroke->at[1] + rng_between(rng, -5.0f, 5.0f);
    const float radius_x = (float)stroke->at[2] * rng_between(rng, 0.78f, 1.20f);
    const float radius_y = (float)stroke->at[3] * rng_between(rng, 0.82f, 1.15f);
    const float from = ((float)stroke->at[4] + rng_between(rng, -15.0f, 15.0f)) * degree;
    const float to = ((float)stroke->at[5] + rng_between(rng, -15.0f, 15.0f)) * degree;
    float last[2];
    float next[2];

    pen_place(pen, x + radius_x * cosf(from), y + radius_y * sinf(from), last);
    for (int i = 1; i <= ARC_SEGMENTS; i++) {
        const float angle = from + (to - from) * (float)i / (float)ARC_SEGMENTS;

        pen_place(pen, x + radius_x * cosf(angle), y + radius_y * sinf(angle), next);
        draw_line(ink, last, next, pen->radius);
        memcpy(last, next, sizeof(last));
    }
}

/* A short stray line somewhere, on one digit in four. */
static void
draw_stray(float *ink, struct rng *rng)
{
    const float from[2] = {rng_between(rng, 0.0f, 28.0f), rng_between(rng, 0.0f, 28.0f)};
    const float to[2] = {from[0] + rng_between(rng, -4.0f, 4.0f),
                         from[1] + rng_between(rng, -4.0f, 4.0f)};

    if (rng_below(rng, 4) == 0) {
        draw_line(ink, from, to, 0.5f);
    }
}

static void
draw_digit(uint8_t *pixels, uint32_t digit, struct rng *rng)
{
    const struct glyph *glyph = &glyphs[digit][rng_below(rng, WAYS_MAX)];
    const struct pen pen = pen_choose(rng);
    const float strength = rng_between(rng, 170.0f, 255.0f);
    const float dirt = rng_between(rng, 0.0f, 40.0f);
    float ink[IMAGE_PIXELS] = {0};

    for (int i = 0; i < STROKES_MAX; i++) {
        const struct stroke *stroke = &glyph->strokes[i];

        if (stroke->points > 0) {
            draw_path(ink, stroke, &pen, rng);
        } else if (stroke->at[2] > 0) {
            draw_arc(ink, stroke, &pen, rng);
        }
    }
    draw_stray(ink, rng);
    for (int i = 0; i < IMAGE_PIXELS; i++) {
        const float value = ink[i] * strength + rng_between(rng, -dirt, dirt);

        pixels[i] = (uint8_t)fminf(fmaxf(value, 0.0f), 255.0f);
    }
}

void
digits_draw(struct images *images, uint64_t seed, uint64_t stream)
{
    struct rng rng = rng_stream(seed, stream);

    for (uint32_t i = 0; i < images->count; i++) {
        images->labels[i] = (uint8_t)(i % CLASSES);
        draw_digit(images->pixels + (size_t)i * IMAGE_PIXELS, i % CLASSES, &rng);
    }
}
