package dense

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel calls f(worker, i) for every i from 0 to n-1, on all cores. The
// worker number is below [Workers] and no two calls with the same number run
// at the same time, so it can select scratch memory. The first error, or the
// end of ctx, stops the calls that have not started.
func Parallel(ctx context.Context, n int, f func(worker, i int) error) error {
	workers := min(Workers(), n)
	if workers <= 1 {
		for i := range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(0, i); err != nil {
				return err
			}
		}
		return nil
	}
	var (
		next  atomic.Int64
		once  sync.Once
		first error
		wg    sync.WaitGroup
		stop  atomic.Bool
	)
	for w := range workers {
		wg.Go(func() {
			for !stop.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				err := ctx.Err()
				if err == nil {
					err = f(w, i)
				}
				if err != nil {
					once.Do(func() { first = err })
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return first
}

// Workers is the number of goroutines that [Parallel] uses at most.
func Workers() int { return runtime.GOMAXPROCS(0) }
