package compress

import (
	"context"
	"sync"
)

// ordered runs work(worker, i) for i from 0 to n-1, on as many goroutines as
// there are workers, and emit(i, result) in the order of i, on the caller's.
// No more than a few results per worker wait to be emitted. It returns, after
// all goroutines have ended, the first error in the order of i: which one
// that is does not depend on timing.
func ordered[T any](ctx context.Context, workers, n int, work func(worker, i int) (T, error), emit func(i int, t T) error) error {
	type result struct {
		t   T
		err error
	}
	workers = max(1, min(workers, n))
	window := 2 * workers
	slots := make([]chan result, window) // result i comes in slot i mod window
	for i := range slots {
		slots[i] = make(chan result, 1)
	}
	tickets := make(chan int, n)
	if n > window {
		tickets = make(chan int, window)
	}
	issued := 0
	for ; issued < min(n, window); issued++ {
		tickets <- issued
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case i := <-tickets:
					var r result
					if r.err = ctx.Err(); r.err == nil {
						r.t, r.err = work(w, i)
					}
					slots[i%window] <- r
				}
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	for i := range n {
		r := <-slots[i%window]
		if r.err != nil {
			return r.err
		}
		if err := emit(i, r.t); err != nil {
			return err
		}
		if issued < n {
			tickets <- issued
			issued++
		}
	}
	return nil
}
