// Go that calls C that calls Go: gocgo MODE; or as a library for C, Enter.
package main

/*
#include <stdint.h>
#include <unistd.h>

extern void goInner(int);
extern void goLast(int);

static volatile uint64_t c_sink;

__attribute__((noinline)) static void c_work(int count) {
	uint64_t value = c_sink;
	for (int i = 0; i < count; i++) value = value * 6364136223846793005u + 1;
	c_sink = value;
}
__attribute__((noinline)) static void c_burn(int count) { c_work(count); c_sink++; }
__attribute__((noinline)) static void c_outer(int count) { goInner(count); c_sink++; }
__attribute__((noinline)) static void c_second(int count) { goLast(count); c_sink++; }
__attribute__((noinline)) static void c_sleep(void) { usleep(20000); c_sink++; }
*/
import "C"

import (
	"fmt"
	"io"
	"os"
)

var sink uint64

//go:noinline
func work(count int) {
	value := sink
	for i := 0; i < count; i++ {
		value = value*6364136223846793005 + 1
	}
	sink = value
}

//export goInner
func goInner(count C.int) { inner(count) }

//export goLast
func goLast(count C.int) { last(count) }

//go:noinline
func inner(count C.int) {
	work(int(count))
	C.c_second(count)
	sink++
}

//go:noinline
func last(count C.int) {
	work(int(count))
	C.c_burn(count)
	sink++
}

//go:noinline
func there() { C.c_burn(100000); sink++ }

//go:noinline
func andBack() { C.c_outer(50000); sink++ }

//go:noinline
func asleep() { C.c_sleep(); sink++ }

//export Enter
func Enter(count C.int) { inner(count) }

func forever(of func()) {
	for {
		of()
	}
}

func main() {
	modes := map[string]func(){"there": there, "back": andBack, "asleep": asleep}
	go forever(modes[os.Args[1]])
	fmt.Println("ready")
	io.ReadAll(os.Stdin)
}
