package dense

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel calls f for every i from 0 to n-1, on all cores. The first error,
// or the end of ctx, stops the calls that have not started.
func Parallel(ctx context.Context, n int, f func(i int) error) error {
	return ParallelScratch(ctx, n, func() struct{} { return struct{}{} }, func(_ struct{}, i int) error { return f(i) })
}

// ParallelScratch is [Parallel] for calls that need scratch memory: each
// goroutine makes itself one with scratch and passes it to all its calls.
func ParallelScratch[S any](ctx context.Context, n int, scratch func() S, f func(s S, i int) error) error {
	var (
		next  atomic.Int64
		stop  atomic.Bool
		once  sync.Once
		first error
		wg    sync.WaitGroup
	)
	work := func() {
		var s S
		for made := false; !stop.Load(); {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			err := ctx.Err()
			if err == nil {
				if !made {
					s, made = scratch(), true
				}
				err = f(s, i)
			}
			if err != nil {
				once.Do(func() { first = err })
				stop.Store(true)
			}
		}
	}
	for range min(runtime.GOMAXPROCS(0), n) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return first
}
