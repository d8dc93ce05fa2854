// A library for C: its goroutines wait, and so does a thread that calls Block.
package main

import "C"

var gate = make(chan int)

//export Park
func Park(n C.int) {
	for i := 0; i < int(n); i++ {
		go park()
	}
}

//export Block
func Block() { park() }

func park() { <-gate }

func main() {}
