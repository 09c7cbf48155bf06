package tokenizer

import "strings"

// scratch is the working memory of one Encode, with a cache of pieces.
type scratch struct {
	ids    []int32
	ranks  []uint32
	to     []int32
	prev   []int32
	next   []int32
	heap   []candidate
	best   []best
	ends   []int32
	pieces []string
	spare  []string
	cache  map[string]cached
	store  []int32
}

// cached is where the ids of a piece are in scratch.store.
type cached struct{ start, end uint32 }

// cached returns the ids of a piece, if it is known.
func (w *scratch) cached(piece string) ([]int32, bool) {
	c, ok := w.cache[piece]
	return w.store[c.start:c.end], ok
}

// keep remembers the ids of a piece that is not too long.
func (w *scratch) keep(piece string, ids []int32) {
	if len(piece) > maxCacheKey {
		return
	}
	if w.cache == nil || len(w.cache) >= maxCacheEntries {
		w.cache = make(map[string]cached)
		w.store = w.store[:0]
	}
	at := uint32(len(w.store))
	w.store = append(w.store, ids...)
	w.cache[strings.Clone(piece)] = cached{at, uint32(len(w.store))} // piece may be a part of a large text
}
