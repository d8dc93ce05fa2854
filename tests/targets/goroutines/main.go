// A program with goroutines in many states. Writes its own profiles to the folder it is given, prints a line when it is
// ready, and once more after each line that it reads.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

type waiter interface{ Wait(depth int) }

type gate struct{ open chan int }

func (g gate) Wait(depth int) {
	if depth > 0 {
		g.Wait(depth - 1)
		return
	}
	<-g.open
}

func inner(c chan int)  { <-c }
func middle(c chan int) { inner(c) }
func outer(c chan int)  { middle(c) }

func generic[T any](c chan T) T { return <-c }

func spin(stop *bool) {
	for !*stop {
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func write(folder string) {
	for name, debug := range map[string]int{"own.pb.gz": 0, "own.1": 1, "own.2": 2} {
		file, err := os.Create(filepath.Join(folder, name))
		must(err)
		must(pprof.Lookup("goroutine").WriteTo(file, debug))
		must(file.Close())
	}
}

func main() {
	folder, many, spins := os.Args[1], 0, 0
	if len(os.Args) > 2 {
		many, _ = strconv.Atoi(os.Args[2])
	}
	if len(os.Args) > 3 {
		spins, _ = strconv.Atoi(os.Args[3])
	}
	c := make(chan int)
	var mutex, locked sync.Mutex
	locked.Lock()
	var group sync.WaitGroup
	group.Add(1)
	condition := sync.NewCond(&mutex)
	started := []func(){
		func() { outer(c) },
		func() { outer(c) },
		func() { generic(c) },
		func() { generic(make(chan string)) },
		func() { gate{c}.Wait(2) },
		func() { (&gate{c}).Wait(8) },
		func() { var w waiter = &gate{c}; w.Wait(0) },
		func() { time.Sleep(time.Hour) },
		func() { locked.Lock() },
		func() { group.Wait() },
		func() { mutex.Lock(); condition.Wait() },
		func() { select {} },
		func() {
			select {
			case <-c:
			case <-time.After(time.Hour):
			}
		},
		func() {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			must(err)
			listener.Accept()
		},
		func() {
			defer func() { recover(); <-c }()
			panic("shown under a deferred call")
		},
		func() {
			pprof.Do(context.Background(), pprof.Labels("kind", "labelled", "worker", "7"), func(context.Context) { outer(c) })
		},
		func() { runtime.LockOSThread(); <-c },
	}
	for _, one := range started {
		go one()
	}
	for i := 0; i < many; i++ {
		go outer(c)
	}
	stop := false
	for i := 0; i < spins; i++ {
		go spin(&stop)
	}
	time.Sleep(200 * time.Millisecond)
	runtime.GC()
	write(folder)
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	for {
		if _, err := input.ReadString('\n'); err != nil {
			return
		}
		write(folder)
		fmt.Println("written")
	}
}
