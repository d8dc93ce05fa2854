// Writes every profile that runtime/pprof knows, of a program that works in a chosen shape: profiles SHAPE DIRECTORY.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"
)

var sink any
var total uint64

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Small enough to be inlined into each other, and into what calls them.
func innermost(n uint64) uint64 { return n*n ^ n>>3 }
func inner(n uint64) uint64     { return innermost(n) + innermost(n+1) }

//go:noinline
func outer(n uint64) uint64 {
	var sum uint64
	for i := uint64(0); i < n; i++ {
		sum += inner(i)
	}
	return sum
}

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
func deep(level int, work func()) {
	if level == 0 {
		work()
		return
	}
	deep(level-1, work)
	total++
}

type pair struct{ one, other uint64 }

func work(shape string) {
	switch shape {
	case "inlined":
		total += outer(200_000)
	case "generic":
		total += generic(make([]uint64, 300), func(n uint64) uint64 { return n + 1 })
		total += generic(make([]string, 300), func(s string) uint64 { return uint64(len(s)) })
		total += generic(make([]pair, 300), func(p pair) uint64 { return p.one + p.other })
	case "deep":
		deep(200, func() { total += outer(200_000) })
	case "labelled":
		for number := 0; number < 3; number++ {
			labels := pprof.Labels("request", fmt.Sprint(number), "empty", "", "odd\x1b<k>", "a\tb é")
			pprof.Do(context.Background(), labels, func(context.Context) { total += outer(60_000) })
		}
	}
	sink = append([]byte(nil), make([]byte, 3000)...)
	sink = strings.Repeat("x", 5000)
}

func main() {
	shape, directory := os.Args[1], os.Args[2]
	runtime.MemProfileRate = 512
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	cpu, err := os.Create(filepath.Join(directory, "cpu"))
	must(err)
	must(pprof.StartCPUProfile(cpu))
	var lock sync.Mutex
	var group sync.WaitGroup
	held := make(chan int)
	for worker := 0; worker < 3; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
				lock.Lock()
				work(shape)
				lock.Unlock()
				runtime.Gosched()
			}
		}()
	}
	go pprof.Do(context.Background(), pprof.Labels("waits", "for ever"), func(context.Context) { <-held })
	group.Wait()
	pprof.StopCPUProfile()
	must(cpu.Close())
	runtime.GC()
	for _, kind := range []string{"heap", "allocs", "block", "mutex", "goroutine", "threadcreate"} {
		file, err := os.Create(filepath.Join(directory, kind))
		must(err)
		must(pprof.Lookup(kind).WriteTo(file, 0))
		must(file.Close())
	}
}
