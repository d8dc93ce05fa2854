// Programs to be sampled: gocpu MODE. Each prints a line when it is ready, and one more with what it counted once its
// standard input ends.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID

var sink uint64
var rounds uint64

func cpu() int64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&now)), 0)
	return now.Sec*1e9 + now.Nsec
}

// Small enough to be inlined.
func mix(value uint64) uint64 { return value*6364136223846793005 + 1442695040888963407 }

//go:noinline
func work(count int) {
	value := sink
	for i := 0; i < count; i++ {
		value = mix(value) ^ value>>7
	}
	sink = value
}

// Until the thread has used so much CPU time.
func burn(nanoseconds int64) {
	for end := cpu() + nanoseconds; cpu() < end; {
		work(2000)
	}
}

//go:noinline
func tenth() { burn(1e6); rounds++ }

//go:noinline
func threeTenths() { burn(3e6); rounds++ }

//go:noinline
func sixTenths() { burn(6e6); rounds++ }

func split() {
	runtime.LockOSThread()
	for {
		tenth()
		threeTenths()
		sixTenths()
	}
}

func labelled() {
	runtime.LockOSThread()
	for {
		pprof.Do(context.Background(), pprof.Labels("kind", "small", "user", "é <b>"), func(context.Context) { burn(2e6) })
		pprof.Do(context.Background(), pprof.Labels("kind", "large"), func(context.Context) { burn(7e6) })
		burn(1e6)
	}
}

//go:noinline
func timeLoop() {
	for begin := time.Now(); time.Since(begin) < time.Hour; {
		rounds++
	}
}

type node struct{ left, right *node }

func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

//go:noinline
func allocate() {
	for {
		tree(10)
	}
}

//go:noinline
func grow(depth int) byte {
	var room [256]byte
	room[depth%256] = byte(depth)
	if depth > 0 {
		room[0] += grow(depth - 1)
	}
	return room[0]
}

// Goroutines that come and go, with stacks that grow, locks, channels and timers.
func churn() {
	var lock sync.Mutex
	for number := 0; number < 4; number++ {
		go func() {
			for {
				done := make(chan byte)
				go func() { done <- grow(100) }()
				sink += uint64(<-done)
				lock.Lock()
				work(500)
				lock.Unlock()
				runtime.Gosched()
			}
		}()
	}
	for {
		time.Sleep(time.Millisecond)
		work(1000)
	}
}

// Profiles itself again and again while others run: its own profiles must stay whole.
func profileItself() {
	go func() {
		for {
			work(100000)
		}
	}()
	for {
		var profile bytes.Buffer
		if err := pprof.StartCPUProfile(&profile); err != nil {
			panic(err)
		}
		burn(5e7)
		pprof.StopCPUProfile()
		if profile.Len() == 0 {
			panic("an empty profile")
		}
		atomic.AddUint64(&rounds, 1)
	}
}

func main() {
	modes := map[string]func(){
		"split": split, "labelled": labelled, "time": timeLoop, "allocate": allocate, "churn": churn,
		"itself": profileItself,
	}
	go modes[os.Args[1]]()
	fmt.Println("ready")
	io.ReadAll(os.Stdin)
	fmt.Println(atomic.LoadUint64(&rounds))
}
