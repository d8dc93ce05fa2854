/* A library that is loaded and unloaded over and over; with another NAME another, of the same shape. */
#ifndef NAME
#define NAME on_call
#endif

unsigned long NAME(unsigned long (*back)(unsigned long), unsigned long x);

unsigned long NAME(unsigned long (*back)(unsigned long), unsigned long x) {
    for (int i = 0; i < 1000; i++) x = x * 31 + (x >> 7);
    x += back(x);
    for (int i = 0; i < 1000; i++) x = x * 31 + (x >> 7);
    return x;
}
