package engine

import (
	"sync"
	"sync/atomic"
)

// pool runs the chunks of a job on several goroutines. Which goroutine runs
// a chunk is left to chance, so a chunk must not care: that makes results
// independent of the number of workers.
type pool struct {
	workers int // with the caller
	jobs    chan *job
	closed  sync.Once
	done    chan struct{}
}

// job is one parallel loop. It is part of a call, and used again and again.
type job struct {
	c      *call
	body   func(c *call, chunk, slot int)
	chunks int64
	next   atomic.Int64
	slots  atomic.Int64
	open   atomic.Int64  // helpers that were asked and have not answered
	finish chan struct{} // answered by the last of them
}

func newPool(workers int) *pool {
	p := &pool{workers: workers, done: make(chan struct{})}
	if workers > 1 {
		p.jobs = make(chan *job, workers-1)
		for range workers - 1 {
			go p.helper()
		}
	}
	return p
}

func (p *pool) close() { p.closed.Do(func() { close(p.done) }) }

func (p *pool) helper() {
	for {
		select {
		case j := <-p.jobs:
			j.help()
		case <-p.done:
			return
		}
	}
}

func (j *job) help() {
	j.work(int(j.slots.Add(1)))
	if j.open.Add(-1) == 0 {
		j.finish <- struct{}{}
	}
}

func (j *job) work(slot int) {
	for {
		k := j.next.Add(1) - 1
		if k >= j.chunks || j.c.done() {
			return
		}
		j.body(j.c, int(k), slot)
	}
}

// run calls body for every chunk. slot tells goroutines apart: it is below
// the number of workers, and no two chunks that run at once have the same.
func (p *pool) run(c *call, chunks int, body func(c *call, chunk, slot int)) {
	if chunks <= 1 || p.workers == 1 {
		for k := range chunks {
			if c.done() {
				return
			}
			body(c, k, 0)
		}
		return
	}
	j := &c.job
	j.c, j.body, j.chunks = c, body, int64(chunks)
	j.next.Store(0)
	j.slots.Store(0)
	// The caller counts as one that has not answered, so that nobody
	// answers before it has asked everyone.
	j.open.Store(1)
ask:
	for range min(p.workers, chunks) - 1 {
		j.open.Add(1)
		select {
		case p.jobs <- j:
		default: // the helpers have enough to do
			j.open.Add(-1)
			break ask
		}
	}
	j.work(0)
	if j.open.Add(-1) == 0 {
		return
	}
	// A helper still works on this job, or its request waits behind another
	// call's. Serving requests meanwhile keeps calls from waiting in a ring.
	for {
		select {
		case <-j.finish:
			return
		case o := <-p.jobs:
			o.help()
		case <-p.done:
			// Requests that no helper will take any more.
			for {
				select {
				case o := <-p.jobs:
					o.help()
				case <-j.finish:
					return
				}
			}
		}
	}
}
