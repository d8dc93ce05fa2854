//go:build go1.21

package main

import (
	"runtime"
	_ "unsafe"
)

//go:linkname frameStartLine runtime/pprof.runtime_FrameStartLine
func frameStartLine(frame *runtime.Frame) int

//go:linkname frameSymbolName runtime/pprof.runtime_FrameSymbolName
func frameSymbolName(frame *runtime.Frame) string
