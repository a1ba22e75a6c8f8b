package guest

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"time"
)

// warmUp makes the Go runtime do its first-use work: allocate memory for each size class, for
// stacks, timers and goroutines, start its poller and its collector, and fill its interface table
// for the types of an attempt. The result is part of the image that attempts start from. Otherwise
// each attempt would repeat this work, in memory that a reset has to copy back.
func warmUp() {
	useRuntime()
	sink = make([]byte, heapRoom) // runtime.GC frees it
	sink = nil
	runtime.GC() // so that attempts need no collection; it also empties the caches that useRuntime then fills
	useRuntime()
}

// heapRoom is the spare size of the heap, in bytes: an instance whose memory grows in an attempt
// cannot be reused.
const heapRoom = 256 << 10

// sink forces values that are assigned to it to be allocated.
var sink any

// sizes are the runtime's size classes that attempts use most, in bytes.
var sizes = []int{
	8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512,
	576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096,
}

// useRuntime uses the parts of the runtime that an attempt is likely to use.
func useRuntime() {
	for _, n := range sizes {
		sink = make([]byte, n)
		if n > 512 {
			n -= 8 // the runtime adds a word that describes the pointers
		}
		sink = make([]*byte, n/8)
	}
	c := net.Conn(&Conn{file: os.NewFile(1<<20, "")}) // no such descriptor
	_, _ = io.ReadFull(c, make([]byte, 1))
	_ = c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
	defer cancel()
	done := make(chan struct{})
	for range 4 {
		go func() {
			growStack(0)
			<-ctx.Done()
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	growStack(0)
}

// growStack makes the stack of a goroutine large enough for most attempts.
func growStack(depth int) byte {
	var frame [1 << 10]byte
	if depth < 16 {
		frame[depth] = growStack(depth + 1)
	}
	return frame[depth/2]
}
