// A program that allocates, blocks and contends: gobuckets FOLDER [busy]. Prints a line when it is ready; for each line that
// it reads it writes its own profiles to FOLDER, their names beginning with that line, and prints a line; after the line
// "exec" it starts anew. With "busy" it goes on working meanwhile, else it stands still, and so do its profiles: there is no
// garbage collection any more.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"
)

var kept [][]byte
var sink interface{}
var maps map[int]string

type pair struct{ one, other uint64 }

// Small enough to be inlined into each other.
func innermost(n int) []byte { return make([]byte, n) }
func inner(n int) []byte     { return innermost(n + 1) }
func middle(n int) []byte    { return inner(2 * n) }

//go:noinline
func outer(n int) { kept = append(kept, middle(n)) }

//go:noinline
func generic[T any](n int) { sink = make([]T, n) }

//go:noinline
func deep(level int, work func()) {
	if level == 0 {
		work()
		return
	}
	deep(level-1, work)
	runtime.KeepAlive(level)
}

type worker interface{ Work(n int) }

type gate struct{ lock *sync.Mutex }

// Called through the wrapper that the compiler makes for *gate.
func (g gate) Work(n int) {
	g.lock.Lock()
	sink = make([]byte, n)
	g.lock.Unlock()
}

func allocate() {
	for i := 0; i < 40; i++ {
		outer(100 * i)
		generic[int](300)
		generic[string](200)
		generic[pair](100)
		sink = strings.Repeat("x", 5000)
	}
	sink = make([]byte, 1<<20)
	deep(20, func() { sink = make([]byte, 3000) })
	deep(200, func() { sink = make([]byte, 7000) })
	maps = map[int]string{}
	for i := 0; i < 2000; i++ {
		maps[i] = "value"
	}
	kept = kept[len(kept)/2:]
}

//go:noinline
func receive(c chan int) { <-c }

func receiveInlined(c chan int) { receive(c) }

func wait() {
	c := make(chan int)
	go func() { time.Sleep(3 * time.Millisecond); c <- 1 }()
	receiveInlined(c)
	go func() { time.Sleep(time.Millisecond); close(c) }()
	select {
	case <-c:
	case <-time.After(time.Minute):
	}
	c = make(chan int)
	go func() { time.Sleep(time.Millisecond); c <- 1 }()
	deep(20, func() { receive(c) })
}

// hold blocks one goroutine for a while on a mutex that another holds.
func hold(lock *sync.Mutex, work worker) {
	lock.Lock()
	done := make(chan bool)
	go func() { work.Work(4000); close(done) }()
	time.Sleep(2 * time.Millisecond)
	lock.Unlock()
	<-done
}

func contend() {
	var lock sync.Mutex
	hold(&lock, &gate{&lock})
	var both sync.RWMutex
	both.RLock()
	done := make(chan bool)
	go func() { both.Lock(); both.Unlock(); close(done) }()
	time.Sleep(2 * time.Millisecond)
	both.RUnlock()
	<-done
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func write(start string) {
	for _, name := range []string{"heap", "allocs", "block", "mutex"} {
		file, err := os.Create(start + name + ".pb.gz")
		must(err)
		must(pprof.Lookup(name).WriteTo(file, 0))
		must(file.Close())
	}
}

func main() {
	if os.Getenv("GODEBUG") == "" {
		runtime.MemProfileRate = 1024
		runtime.SetBlockProfileRate(1)
		runtime.SetMutexProfileFraction(2)
	}
	// Of the contentions half are counted: there must be many for each stack to have one.
	for i := 0; i < 20; i++ {
		allocate()
		wait()
		contend()
	}
	runtime.GC()
	runtime.GC()
	if len(os.Args) > 2 {
		go func() {
			for {
				allocate()
			}
		}()
		for i := 0; i < 2; i++ {
			go func() {
				for {
					wait()
					contend()
				}
			}()
		}
	} else {
		debug.SetGCPercent(-1)
	}
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if input.Text() == "exec" {
			must(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
		}
		write(filepath.Join(os.Args[1], input.Text()))
		fmt.Println("written")
	}
}
