// Records itself, and writes both what Go's runtime gave (the stream's words, and what is known of each address) as
// JSON to WORDS, and what runtime/pprof makes of the very same words to PROFILE: records WORDS PROFILE.
//
// It reaches into runtime/pprof: build it with -ldflags=-checklinkname=0 (Go 1.23 and later).
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	_ "runtime/pprof"
	"time"
	"unsafe"
)

//go:linkname readProfile runtime/pprof.readProfile
func readProfile() (words []uint64, tags []unsafe.Pointer, end bool)

//go:linkname newProfileBuilder runtime/pprof.newProfileBuilder
func newProfileBuilder(out io.Writer) unsafe.Pointer

//go:linkname addCPUData runtime/pprof.(*profileBuilder).addCPUData
func addCPUData(builder unsafe.Pointer, words []uint64, tags []unsafe.Pointer) error

//go:linkname build runtime/pprof.(*profileBuilder).build
func build(builder unsafe.Pointer)

//go:linkname expandFinalInlineFrame runtime/pprof.runtime_expandFinalInlineFrame
func expandFinalInlineFrame(stack []uintptr) []uintptr

type symbol struct {
	Function  string
	File      string
	Line      int
	Entry     uint64
	StartLine int
	Real      bool
}

type recording struct {
	Calls   [][]uint64
	Symbols map[uint64][]symbol
	Callers map[uint64][]uint64
	Maps    string
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var total uint64

func innermost(n uint64) uint64 { return n*n ^ n>>3 }
func inner(n uint64) uint64     { return innermost(n)*3 + innermost(n+1) }

//go:noinline
func outer(n uint64) uint64 {
	var sum uint64
	for i := uint64(0); i < n; i++ {
		sum += inner(i)
	}
	return sum
}

func middle(n uint64) uint64 { return outer(n) + 1 }

//go:noinline
func generic[T any](values []T, of func(T) uint64) uint64 {
	var sum uint64
	for round := 0; round < 500; round++ {
		for _, value := range values {
			sum += of(value)
		}
	}
	return sum
}

//go:noinline
func deep(level int) {
	if level > 0 {
		deep(level - 1)
		total++
	} else {
		total += middle(200_000)
	}
}

func (r *recording) look(words []uint64) {
	for len(words) > 0 {
		stack := words[3:words[0]]
		words = words[words[0]:]
		if len(stack) == 0 {
			continue
		}
		pcs := []uintptr{uintptr(stack[len(stack)-1])}
		for _, pc := range expandFinalInlineFrame(pcs)[1:] {
			r.Callers[stack[len(stack)-1]] = append(r.Callers[stack[len(stack)-1]], uint64(pc))
			stack = append(stack[:len(stack):len(stack)], uint64(pc))
		}
		for _, pc := range stack {
			r.Symbols[pc] = symbolsOf(pc)
		}
	}
}

func symbolsOf(pc uint64) []symbol {
	found := []symbol{}
	frames := runtime.CallersFrames([]uintptr{uintptr(pc)})
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if frame.PC != 0 {
			found = append(found, symbol{
				frameSymbolName(&frame), frame.File, frame.Line, uint64(frame.Entry), frameStartLine(&frame), frame.Func != nil,
			})
		}
	}
	return found
}

func main() {
	out, err := os.Create(os.Args[2])
	must(err)
	builder := newProfileBuilder(out)
	made := recording{Symbols: map[uint64][]symbol{}, Callers: map[uint64][]uint64{}}
	runtime.SetCPUProfileRate(500)
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		total += outer(100_000) + middle(50_000)
		total += generic(make([]uint64, 200), func(n uint64) uint64 { return n + 1 })
		total += generic(make([]string, 200), func(s string) uint64 { return uint64(len(s)) })
		deep(10)
		deep(300)
		go deep(5)
		for i := 0; i < 20_000; i++ {
			total += uint64(time.Since(end))
		}
	}
	runtime.SetCPUProfileRate(0)
	for {
		words, tags, end := readProfile()
		if len(words) > 0 {
			made.Calls = append(made.Calls, append([]uint64(nil), words...))
			must(addCPUData(builder, words, tags))
		}
		if end {
			break
		}
	}
	build(builder)
	must(out.Close())
	for number, words := range made.Calls {
		if number == 0 {
			words = words[3:]
		}
		made.look(words)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	must(err)
	made.Maps = string(maps)
	content, err := json.Marshal(made)
	must(err)
	must(os.WriteFile(os.Args[1], content, 0o600))
}
