package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/internal/runner"
	"anemone/mil"
)

// Snapshots says how many snapshots of its states a session keeps, and when
// it takes them by itself. That happens only in packages whose states cannot
// be rewound: recurrent states, and caches that shift. Elsewhere going back
// costs nothing.
//
// [Session.Generate] takes one on the last boundary of calls within
// Options.Pinned, one on the last within Options.Turn, one when all of the prompt
// has been fed, and one at its end. None is taken twice.
type Snapshots struct {
	// Max is how many are kept at most. 0 means none.
	Max int
	// Bytes is the memory that all of them may take together, what they
	// remember of tokens and logits included. To keep within both limits those
	// are dropped whose taking, or latest use, is the longest ago.
	Bytes int64
	// Every asks for snapshots while long prompts are fed, too: after the first
	// batch in every so many positions. 0 means none.
	Every int
}

// DefaultSnapshots returns what a new session begins with: at most 8
// snapshots in at most 1 GiB, none between batches.
func DefaultSnapshots() Snapshots { return Snapshots{Max: 8, Bytes: 1 << 30} }

// ErrSnapshotLimit is matched by errors about a snapshot that the session's
// limits leave no room for.
var ErrSnapshotLimit = errors.New("there is no room for a snapshot")

// snapshot is what a session was after some tokens.
type snapshot struct {
	tokens  []int32
	rotated bool
	parts   []*runner.Tensor // of the states, in the order of snapshots.parts
	scores  *scores          // after the last token; nil if they were not known
	bytes   int64
}

// statePart is one named state of one of a session's states.
type statePart struct {
	state runner.State
	name  string
	// axis is the one whose row p belongs to position p alone, so that rows from
	// the end of the context on are of no use; -1 if there is none.
	axis  int
	shape []int // as declared; nil if the models do not say
	dtype mil.DType
}

// snapshots holds the snapshots of one session.
type snapshots struct {
	limits Snapshots
	parts  []statePart
	list   []*snapshot // the latest last
	bytes  int64
}

// findParts lists what a snapshot consists of.
func (s *Session) findParts() {
	p := s.m.pkg
	short := func(f coreml.Feature) bool { return len(f.Shape) == 4 && f.Shape[2] == p.Window }
	for i, st := range s.states {
		chunk := i
		if p.StateOwner >= 0 {
			chunk = p.StateOwner
		}
		declared := map[string]coreml.Feature{}
		for _, f := range p.Chunks[chunk].Model.Functions {
			for _, x := range f.States {
				declared[x.Name] = x
			}
		}
		for _, name := range st.Names() {
			part := statePart{state: st, name: name, axis: -1}
			if f, ok := declared[name]; ok {
				part.shape, part.dtype = f.Shape, f.DType
				// A cache with a row for every position keeps each at its place.
				// Shorter ones shift, and so may a long one among the rotated
				// if none is shorter.
				cache := strings.Contains(name, "kv_cache") && len(f.Shape) == 4 && f.Shape[2] >= p.ContextLength
				if cache && (p.Window == 0 || slices.ContainsFunc(p.States, short)) {
					part.axis = 2
				}
			}
			s.saved.parts = append(s.saved.parts, part)
		}
	}
}

// size returns the bytes of the part's copy after n tokens.
func (p *statePart) size(n int) int64 {
	bytes := int64(4)
	for i, d := range p.shape {
		if i == p.axis {
			d = n
		}
		bytes *= int64(d)
	}
	return bytes
}

// read copies the part after n tokens.
func (p *statePart) read(n int) (*runner.Tensor, error) {
	if p.axis < 0 {
		return p.state.Read(p.name)
	}
	t := &runner.Tensor{DType: p.dtype, Shape: slices.Clone(p.shape)}
	t.Shape[p.axis] = n
	size, ok := mil.NumElements(t.Shape)
	if !ok {
		return nil, fmt.Errorf("state %s: no tensor has the shape %v", p.name, t.Shape)
	}
	if p.dtype.IsFloat() {
		t.Float = make([]float32, size)
	} else {
		t.Int = make([]int32, size)
	}
	if st, ok := p.state.(runner.RowState); ok {
		return t, st.ReadRows(p.name, p.axis, t)
	}
	whole, err := p.state.Read(p.name)
	if err != nil {
		return nil, err
	}
	return t, p.copyRows(t, whole, func(row, whole []float32) { copy(row, whole) }, func(row, whole []int32) { copy(row, whole) })
}

// write puts a copy of the part back. What lies behind it becomes zero.
func (p *statePart) write(t *runner.Tensor) error {
	if p.axis < 0 {
		return p.state.Write(p.name, t)
	}
	if st, ok := p.state.(runner.RowState); ok {
		return st.WriteRows(p.name, p.axis, t)
	}
	whole := &runner.Tensor{DType: t.DType, Shape: p.shape}
	n, ok := mil.NumElements(p.shape)
	if !ok {
		return fmt.Errorf("state %s: no tensor has the shape %v", p.name, p.shape)
	}
	if t.DType.IsFloat() {
		whole.Float = make([]float32, n)
	} else {
		whole.Int = make([]int32, n)
	}
	if err := p.copyRows(t, whole, func(row, whole []float32) { copy(whole, row) }, func(row, whole []int32) { copy(whole, row) }); err != nil {
		return err
	}
	return p.state.Write(p.name, whole)
}

// copyRows calls one of two functions with each run of rows, and the run of
// the whole state that begins with it.
func (p *statePart) copyRows(rows, whole *runner.Tensor, floats func(row, whole []float32), ints func(row, whole []int32)) error {
	if err := whole.Check(); err != nil || !slices.Equal(whole.Shape, p.shape) {
		return fmt.Errorf("state %s has the shape %v, wanted %v as the models declare it", p.name, whole.Shape, p.shape)
	}
	outer, inner := 1, 1
	for i, d := range p.shape {
		if i < p.axis {
			outer *= d
		} else if i > p.axis {
			inner *= d
		}
	}
	n, m := rows.Shape[p.axis]*inner, p.shape[p.axis]*inner
	for o := range outer {
		if whole.DType.IsFloat() {
			floats(rows.Float[o*n:(o+1)*n], whole.Float[o*m:(o+1)*m])
		} else {
			ints(rows.Int[o*n:(o+1)*n], whole.Int[o*m:(o+1)*m])
		}
	}
	return nil
}

// SetSnapshots sets the limits of snapshots and when they are taken. Those
// that are too many are dropped; the zero Snapshots drops all.
func (s *Session) SetSnapshots(o Snapshots) {
	s.saved.limits = o
	s.saved.shrink(0, 0)
}

// SnapshotMemory returns the number of snapshots and the bytes that they
// take.
func (s *Session) SnapshotMemory() (n int, bytes int64) { return len(s.saved.list), s.saved.bytes }

// shrink drops the oldest snapshots until there is room for n more of some
// bytes.
func (v *snapshots) shrink(n int, bytes int64) {
	for len(v.list) > 0 && (len(v.list)+n > v.limits.Max || v.bytes+bytes > v.limits.Bytes) {
		v.drop(0)
	}
}

func (v *snapshots) drop(i int) {
	v.bytes -= v.list[i].bytes
	v.list = slices.Delete(v.list, i, i+1)
}

// Snapshot keeps a copy of the states for the tokens in the context, also
// in packages that can be rewound. [Session.Generate] comes back to it when a
// prompt begins with these tokens and less of it is in the context, and
// [Session.Rewind] when it goes back to this position. Without room for it the
// error matches [ErrSnapshotLimit].
func (s *Session) Snapshot() error {
	v := &s.saved
	n := len(s.tokens)
	switch {
	case s.stale:
		return ErrStale
	case s.skewed:
		return errors.New("the states are not those of the tokens since they were fed in ANEMLL's sequence; reset the session")
	case n == 0:
		return nil // every session can go there
	}
	for i, x := range v.list {
		if slices.Equal(x.tokens, s.tokens) {
			if x.scores != nil || !s.fresh {
				v.list = append(slices.Delete(v.list, i, i+1), x)
				return nil
			}
			v.drop(i)
			break
		}
	}
	x := &snapshot{rotated: s.rotated}
	if v.parts == nil {
		s.findParts()
	}
	need := int64(4 * n)
	for i := range v.parts {
		need += v.parts[i].size(n)
	}
	if s.fresh {
		need += s.scores.size()
	}
	if v.limits.Max < 1 || need > v.limits.Bytes {
		return fmt.Errorf("%w: %d positions take %d bytes, and the limit is %d snapshots in %d bytes", ErrSnapshotLimit, n, need, v.limits.Max, v.limits.Bytes)
	}
	v.shrink(1, need)
	x.bytes = int64(4 * n)
	for i := range v.parts {
		t, err := v.parts[i].read(n)
		if err != nil {
			return fmt.Errorf("snapshot of %d positions: %w", n, err)
		}
		x.parts = append(x.parts, t)
		x.bytes += int64(4 * t.Len())
	}
	x.tokens = slices.Clone(s.tokens)
	if s.fresh {
		x.scores = s.scores.clone()
		x.bytes += x.scores.size()
	}
	if v.shrink(1, x.bytes); x.bytes > v.limits.Bytes { // a state was larger than declared
		return fmt.Errorf("%w: %d positions take %d bytes, and the limit is %d", ErrSnapshotLimit, n, x.bytes, v.limits.Bytes)
	}
	v.list = append(v.list, x)
	v.bytes += x.bytes
	return nil
}

// keep takes a snapshot if the package's states cannot be rewound. Having
// none is slower later and nothing else, so there is no error.
func (s *Session) keep() {
	if s.saved.limits.Max > 0 && !s.m.pkg.Rewindable() && !s.stale && !s.skewed {
		_ = s.Snapshot()
	}
}

// longest returns the snapshot that holds the most of tokens, if it is more
// than some; nil if there is none. All of tokens is of use with scores only.
func (v *snapshots) longest(tokens []int32, some int) (best *snapshot) {
	for _, x := range v.list {
		n := len(x.tokens)
		if n > some && n <= len(tokens) && (n < len(tokens) || x.scores != nil) && slices.Equal(x.tokens, tokens[:n]) {
			best, some = x, n
		}
	}
	return best
}

// at returns the snapshot of exactly these tokens.
func (v *snapshots) at(tokens []int32) *snapshot {
	for _, x := range v.list {
		if slices.Equal(x.tokens, tokens) {
			return x
		}
	}
	return nil
}

// restore makes the session what it was. After an error it is empty, and the
// snapshot dropped.
func (s *Session) restore(x *snapshot) error {
	v := &s.saved
	i := slices.Index(v.list, x)
	for k := range v.parts {
		if err := v.parts[k].write(x.parts[k]); err != nil {
			v.drop(i)
			s.Reset()
			return fmt.Errorf("go back to position %d: %w", len(x.tokens), err)
		}
	}
	v.list = append(slices.Delete(v.list, i, i+1), x) // it is in use
	s.tokens = append(s.tokens[:0], x.tokens...)
	s.rotated, s.stale, s.skewed = x.rotated, false, false
	if s.fresh = x.scores != nil; s.fresh {
		s.scores.set(x.scores)
	}
	return nil
}

func (s *scores) size() int64 { return 4 * int64(len(s.logits)+len(s.index)+len(s.value)) }

func (s *scores) clone() *scores {
	return &scores{slices.Clone(s.logits), slices.Clone(s.index), slices.Clone(s.value)}
}

// set copies other scores, into the places that the head writes to.
func (s *scores) set(x *scores) {
	copy(s.logits, x.logits)
	copy(s.index, x.index)
	copy(s.value, x.value)
}

// goTo makes the context the longest beginning of tokens that needs no
// feeding, or all of them if the scores after them are known, and returns its
// length.
func (s *Session) goTo(tokens []int32) int {
	n := len(tokens)
	live := 0
	if !s.stale && !s.skewed {
		for live < min(n, s.Pos()) && tokens[live] == s.tokens[live] {
			live++
		}
		if live == n && n == s.Pos() && s.fresh {
			return n
		}
		// The last token has to be fed to know what comes next.
		if live = min(live, n-1); !s.goesBack(live) {
			live = 0
		}
	}
	if x := s.saved.longest(tokens, live); x != nil {
		if s.restore(x) != nil {
			return 0
		}
		return len(x.tokens)
	}
	if !s.goesBack(live) || s.stale || s.skewed {
		s.Reset()
		return 0
	}
	s.cut(live)
	return live
}
