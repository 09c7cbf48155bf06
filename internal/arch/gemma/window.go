package gemma

import (
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/mil"
)

// window is the cache of the sliding layers. It has one of three forms, by
// the position that its slot j holds after a call of T tokens whose last
// position is e:
//
//	whole     j. The window is a mask.
//	blocks    base + j with base = (e/batch + 1)*batch - length
//	dropping  base + j with base = e + 1 - length
//
// In the latter two, positions below 0 are empty and those beyond e not
// written yet; both are masked, whatever a slot holds from an earlier use of
// the state.
//
// With blocks, the place of a position depends on its block alone, so the
// single tokens and the batches of a prompt find the same keys in the same
// order. One block of slack is for what is missing of the last block, the
// other keeps the window of a batch whole that begins inside a block. No call
// of T <= batch tokens from position p on misses a key: with e = p + T - 1,
//
//	base = floor(e/batch)*batch - size - batch <= e - size - batch <= p - size - 1
//
// and the first token of the call looks no further back than p - size + 1.
// What lies between base and p was there before: a call moves the cache by as
// much as base grows and then writes its own positions, so that the slots whose
// contents are not moved, the last block's, hold nothing but what this call
// writes and what is masked. Position 0 counts as one that follows -1, in the
// block before the first, whatever the state was used for.
//
// Dropping is the first version of the layout, of which packages exist; its
// cache moves by T positions at every call.
type window struct {
	kind   cacheKind
	size   int // positions that a token attends to, its own included
	batch  int
	length int // slots of the cache
}

type cacheKind uint8

const (
	whole cacheKind = iota
	blocks
	dropping
)

// window returns the form of the local cache for a package.
func (c *Caches) window(o arch.Options) window {
	w := window{size: c.Window, batch: o.Batch, kind: blocks, length: c.Window + 2*o.Batch}
	if c.Dropping {
		w.kind, w.length = dropping, c.Window+o.Batch
	}
	if o.Context <= w.length || o.FullLocalCache {
		w.kind, w.length = whole, o.Context
	}
	return w
}

func intOp(b *mil.Builder, typ string, x, y *mil.Value) *mil.Value {
	return b.Op(typ, mil.A("x", x), mil.A("y", y))
}

// open makes the cache ready for a call of t tokens: shifted, for the slots
// [from, to) of the layers at hand, and with the mask [1, 1, t, length] of
// what each token may attend to.
//
// All arithmetic on positions is in int32, which fp16 could not hold, and
// depends on nothing but the call's inputs.
func (w window) open(b *mil.Builder, state *mil.Value, from, to int, positions, current, causal *mil.Value, t int) (mask *mil.Value, cache *nn.Cache) {
	one := func(v int) *mil.Value { return b.Const(mil.Int(v)) }
	slots := b.Op("range_1d", mil.A("start", one(0)), mil.A("end", one(w.length)), mil.A("step", one(1)))
	if w.kind == whole {
		back := w.distance(b, positions, slots, t)
		far := intOp(b, "greater_equal", back, one(w.size))
		return forbid(b, far, causal), nn.NewCache(b, state, current, t)
	}

	// base is the position of slot 0 after the call, [1].
	var base *mil.Value
	if w.kind == blocks {
		block := intOp(b, "floor_div", intOp(b, "add", current, one(t-1)), one(w.batch))
		base = intOp(b, "add", intOp(b, "mul", block, one(w.batch)), one(w.batch-w.length))
	} else {
		base = intOp(b, "add", current, one(t-w.length))
	}
	held := intOp(b, "add", slots, base) // the position of each slot
	back := w.distance(b, positions, held, t)
	// A key counts if it is there (held >= 0), not later than the token
	// (back >= 0) and not too far before it (back < size).
	worst := intOp(b, "minimum", back, intOp(b, "sub", one(w.size-1), back))
	worst = intOp(b, "minimum", worst, nn.Reshape(b, held, 1, 1, 1, w.length))
	mask = forbid(b, intOp(b, "less", worst, one(0)), constant(b, 0, 1, 1, t, w.length))

	if from < to {
		w.shift(b, state, from, to, current, t)
	}
	return mask, nn.NewCache(b, state, intOp(b, "sub", current, base), t)
}

// forbid returns a mask, of the shape of the result, with -inf where cond
// holds.
func forbid(b *mil.Builder, cond, mask *mil.Value) *mil.Value {
	return b.Op("select", mil.A("cond", cond), mil.A("a", b.Const(mil.Half(math.Inf(-1)))), mil.A("b", mask))
}

// distance returns how far each of the held positions [length] lies before
// each of the call's tokens, [1, 1, t, length].
func (w window) distance(b *mil.Builder, positions, held *mil.Value, t int) *mil.Value {
	return intOp(b, "sub", nn.Reshape(b, positions, 1, 1, t, 1), nn.Reshape(b, held, 1, 1, 1, w.length))
}

// shift moves what the slots [from, to) of the state hold towards the front:
// by a block for a call that enters one, or by t positions. The last ones,
// which are about to be written or masked, keep what they had.
//
// It is an update of a slice: the Neural Engine's compiler rejects caches
// that are put together from parts of themselves.
func (w window) shift(b *mil.Builder, state *mil.Value, from, to int, current *mil.Value, t int) {
	by := w.batch
	if w.kind == dropping {
		by = t
	}
	all := b.Op("read_state", mil.A("input", state))
	mine := nn.Slice(b, all, 0, from, to)
	moved := nn.Slice(b, mine, 2, by, w.length)
	if w.kind == blocks && (t == 1 || t < w.batch) {
		// A whole batch always enters a block. Fewer tokens enter one if the
		// first position of the last token's block is among theirs; of a single
		// token, if it is its own. (The block of the position before them would
		// say it as well, but that of -1 depends on how a quotient is rounded.)
		// Products with 0 and 1 are exact, and what a cache holds is finite.
		last, among := current, "equal"
		if t > 1 {
			last, among = intOp(b, "add", current, b.Const(mil.Int(t-1))), "less_equal"
		}
		block := intOp(b, "floor_div", last, b.Const(mil.Int(w.batch)))
		into := intOp(b, among, current, intOp(b, "mul", block, b.Const(mil.Int(w.batch))))
		enters := b.Op("cast", mil.A("x", into), mil.A("dtype", b.Const(mil.Str("fp16"))))
		stays := b.Op("sub", mil.A("x", b.Const(mil.Half(1))), mil.A("y", enters))
		moved = nn.Add(b, nn.Mul(b, moved, enters), nn.Mul(b, nn.Slice(b, mine, 2, 0, w.length-by), stays))
	}
	s := state.Type.Shape
	updated := b.Op("slice_update", mil.A("x", all), mil.A("update", moved),
		mil.A("begin", b.Const(mil.Ints(from, 0, 0, 0))), mil.A("end", b.Const(mil.Ints(to, s[1], w.length-by, s[3]))))
	b.OpAll("write_state", mil.A("input", state), mil.A("data", updated))
}
