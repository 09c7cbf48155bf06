package session_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch/all"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/session/sessiontest"
	"anemone/internal/testutil"
)

// converted are the packages of every kind of states, made from the tiny
// checkpoints.
var converted = []struct {
	name, checkpoint string
	context, batch   int
	rewindable       bool
}{
	{"plain", "tiny-qwen3", 128, 16, true},
	{"recurrent", "tiny-qwen35", 128, 16, false},
	{"recurrent, experts", "tiny-qwen35-moe-fused", 128, 16, false},
	{"shifting", "tiny-gemma4", 256, 16, false},
	{"whole local cache", "tiny-gemma4", 64, 16, true},
	{"recurrent, in calls of 8 and 2", "tiny-qwen35+8+2", 128, 16, false},
	{"shifting, in calls of 8 and 2", "tiny-gemma4+8+2", 256, 16, false},
	{"plain, in calls of 4", "tiny-qwen3+4", 128, 16, true},
}

// convert makes a package of a checkpoint, whose name may be followed by the
// numbers of tokens of functions for what does not fill a batch.
func convert(t testing.TB, checkpoint string, context, batch int, load session.Loader) *session.Model {
	t.Helper()
	checkpoint, more, _ := strings.Cut(checkpoint, "+")
	dir := filepath.Join(t.TempDir(), "package")
	o := anemll.Options{Context: context, Batch: batch, Chunks: 2, Format: anemll.MLPackage, Name: "test"}
	if strings.Contains(checkpoint, "qwen35") {
		o.GDNChunk = batch
	}
	for n := range strings.SplitSeq(more, "+") {
		if n, err := strconv.Atoi(n); err == nil {
			o.Remainders = append(o.Remainders, n)
		}
	}
	if _, err := anemll.Convert(t.Context(), all.Registry, testutil.Data(t, "checkpoints", checkpoint), dir, o); err != nil {
		t.Fatal(err)
	}
	p, err := anemll.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	m, err := session.Load(p, load)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// only is a runner whose states have nothing but the methods of runner.State.
type only struct{ runner.Model }

type onlyState struct{ runner.State }

func (m only) NewState() (runner.State, error) {
	st, err := m.Model.NewState()
	return onlyState{st}, err
}

func (m only) Predict(ctx context.Context, f string, in, out runner.Values, st runner.State) error {
	if o, ok := st.(onlyState); ok {
		st = o.State
	}
	return m.Model.Predict(ctx, f, in, out, st)
}

func loadOnly(c *coreml.Model) (runner.Model, error) {
	m, err := loadEngine(c)
	return only{m}, err
}

func newSession(t testing.TB, m *session.Model) *session.Session {
	t.Helper()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func randomIDs(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(1024))
	}
	return ids
}

func feed(t testing.TB, s *session.Session, ids []int32) []float32 {
	t.Helper()
	logits, err := s.Feed(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// answer generates and returns the tokens and the statistics.
func answer(t testing.TB, s *session.Session, prompt []int32, o session.Options) (tokens []int32, stats session.Stats) {
	t.Helper()
	for e, err := range s.Generate(t.Context(), prompt, o) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case session.Token:
			tokens = append(tokens, e.Token)
		case session.End:
			stats = e.Stats
		}
	}
	return tokens, stats
}

// stateBits returns everything that the states hold.
func stateBits(t testing.TB, s *session.Session) (bits []uint32) {
	t.Helper()
	for _, st := range s.States() {
		for _, name := range st.Names() {
			x, err := st.Read(name)
			if err != nil {
				t.Fatal(err)
			}
			bits = append(bits, floatBits(x.Float)...)
		}
	}
	return bits
}

func floatBits(x []float32) []uint32 {
	bits := make([]uint32, len(x))
	for i, v := range x {
		bits[i] = math.Float32bits(v)
	}
	return bits
}

func sameBits(a, b []float32) bool { return slices.Equal(floatBits(a), floatBits(b)) }

// A session that goes back to a snapshot is what it was, and what follows has
// the same bits: at the edges of blocks and inside of them, in one that has
// been elsewhere meanwhile, through rows of states and through whole ones.
func TestSnapshotContinues(t *testing.T) {
	if testing.Short() {
		t.Skip("arithmetic on one goroutine, twenty times slower under the race detector; runs without -short")
	}
	for _, c := range converted {
		for name, load := range map[string]session.Loader{"rows": loadEngine, "whole states": loadOnly} {
			t.Run(fmt.Sprintf("%s, %s", c.name, name), func(t *testing.T) {
				m := convert(t, c.checkpoint, c.context, c.batch, load)
				r := rand.New(rand.NewPCG(7, 8))
				ids, other := randomIDs(r, c.context), randomIDs(r, c.context)
				cuts := []int{1, 15, 16, 17, 27, 32, 40, 64, 83, 128, 201} // in blocks of 16
				if name == "whole states" || c.rewindable {
					cuts = []int{16, 27, 83}
				}
				for _, at := range cuts {
					end := at + 37
					if end > c.context {
						continue
					}
					s := newSession(t, m)
					feed(t, s, ids[:at])
					if err := s.Snapshot(); err != nil {
						t.Fatal(err)
					}
					before := stateBits(t, s)
					want := [2][]float32{feed(t, s, ids[at:end-1]), feed(t, s, ids[end-1:end])}
					after := stateBits(t, s)

					// Back on the same branch.
					if !s.CanRewind(at) {
						t.Fatalf("at %d: no way back", at)
					}
					if err := s.Rewind(at); err != nil {
						t.Fatal(err)
					}
					if !c.rewindable && !slices.Equal(stateBits(t, s), before) {
						t.Errorf("at %d: the states are others", at)
					}
					got := [2][]float32{feed(t, s, ids[at:end-1]), feed(t, s, ids[end-1:end])}
					if !sameBits(got[0], want[0]) || !sameBits(got[1], want[1]) || !slices.Equal(stateBits(t, s), after) {
						t.Errorf("at %d: what follows is not the same", at)
					}

					// From elsewhere: another conversation, longer and from the start.
					s.Reset()
					feed(t, s, other[:min(c.context, end+20)])
					_, stats := answer(t, s, ids[:end-1], session.Options{MaxTokens: 1})
					if stats.Reused != at {
						t.Errorf("at %d: %d tokens were taken from a snapshot", at, stats.Reused)
					}
					if !sameBits(s.Logits(), want[0]) || !sameBits(feed(t, s, ids[end-1:end]), want[1]) {
						t.Errorf("at %d: what follows in another session is not the same", at)
					}
					if !slices.Equal(stateBits(t, s), after) {
						t.Errorf("at %d: the states are not the same after another conversation", at)
					}

					// All of a prompt: nothing to feed.
					s.Reset()
					feed(t, s, other[:3])
					token, stats := answer(t, s, ids[:at], session.Options{MaxTokens: 1})
					fresh := newSession(t, m)
					if first := feed(t, fresh, ids[:at]); stats.Reused != at || !sameBits(s.Logits(), first) || int(token[0]) != slices.Index(first, slices.Max(first)) {
						t.Errorf("at %d: a whole prompt from a snapshot: %d tokens reused", at, stats.Reused)
					}
				}
			})
		}
	}
}

// A hundred random edits of a history give what a fresh session gives.
func TestRandomEdits(t *testing.T) {
	if testing.Short() {
		t.Skip("arithmetic on one goroutine, twenty times slower under the race detector; runs without -short")
	}
	for _, c := range converted {
		t.Run(c.name, func(t *testing.T) {
			m := convert(t, c.checkpoint, c.context, c.batch, loadEngine)
			r := rand.New(rand.NewPCG(9, uint64(len(c.name))))
			s := newSession(t, m)
			limits := session.Snapshots{Max: 5, Bytes: 3 << 20, Every: 32}
			s.SetSnapshots(limits)
			history := randomIDs(r, 30)
			branches := [][]int32{history}
			reused, fed, most := 0, 0, 0
			edits := 100
			if c.rewindable {
				edits = 30
			}
			for edit := range edits {
				what := "extended"
				switch k := r.IntN(4); {
				case k == 0 && len(history) > 2: // the end is dropped
					what = "cut"
					history = history[:1+r.IntN(len(history)-1)]
				case k == 1: // one token becomes another
					what = "changed"
					history[r.IntN(len(history))] = int32(r.IntN(1024))
				case k == 2: // an earlier one, with a new end
					what = "branched"
					from := branches[r.IntN(len(branches))]
					history = append(slices.Clone(from[:1+r.IntN(len(from))]), randomIDs(r, r.IntN(20))...)
				default:
					history = append(history, randomIDs(r, 1+r.IntN(40))...)
				}
				history = slices.Clone(history[:min(len(history), c.context-8)])
				branches = append(branches, history)
				o := session.Options{MaxTokens: 1 + r.IntN(6), Pinned: 4}
				got, stats := answer(t, s, history, o)
				fresh := newSession(t, m)
				fresh.SetSnapshots(session.Snapshots{})
				want, _ := answer(t, fresh, history, o)
				if !slices.Equal(got, want) {
					t.Fatalf("edit %d, %s to %d tokens, %d of them reused: %v, want %v", edit, what, len(history), stats.Reused, got, want)
				}
				if n, bytes := s.SnapshotMemory(); n > limits.Max || bytes > limits.Bytes {
					t.Fatalf("edit %d: %d snapshots of %d bytes", edit, n, bytes)
				} else {
					most = max(most, n)
				}
				reused, fed = reused+stats.Reused, fed+stats.Prompt
				history = append(slices.Clone(history), got...)
			}
			t.Logf("%d of %d tokens were not fed again, at most %d snapshots", reused, fed, most)
			if reused < fed/5 {
				t.Errorf("only %d of %d tokens were reused", reused, fed)
			}
			if c.rewindable != (most == 0) {
				t.Errorf("%d snapshots", most)
			}
		})
	}
}

// What a snapshot takes, by hand: of caches the rows so far, the rest whole.
func TestSnapshotMemory(t *testing.T) {
	for _, c := range []struct {
		checkpoint string
		context    int
		bytes      func(n int64) int64
	}{
		// Two layers of keys and values in 2 heads of 64; six of 4 heads of 32 x
		// 32, and of 3 rows of 2 x 64 + 128 channels.
		{"tiny-qwen35", 128, func(n int64) int64 { return 4 * (2*2*2*n*64 + 6*4*32*32 + 6*3*256) }},
		// Layers 2 and 5 keep keys and values of 64 for every position, 0, 1, 3
		// and 4 of 32 for 64 positions.
		{"tiny-gemma4", 256, func(n int64) int64 { return 4 * (2*2*n*64 + 4*2*64*32) }},
		{"tiny-qwen3", 128, func(n int64) int64 { return 4 * (4 * 2 * 2 * n * 64) }},
	} {
		m := convert(t, c.checkpoint, c.context, 16, loadEngine)
		s := newSession(t, m)
		want, count := int64(0), 0
		for _, n := range []int{3, 20, 40} {
			feed(t, s, make([]int32, n-s.Pos()))
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			if err := s.Snapshot(); err != nil { // the same once more
				t.Fatal(err)
			}
			want += c.bytes(int64(n)) + int64(4*n) + 4*1024
			count++
			if got, bytes := s.SnapshotMemory(); got != count || bytes != want {
				t.Errorf("%s: %d snapshots of %d bytes, want %d of %d", c.checkpoint, got, bytes, count, want)
			}
		}
		// The oldest goes first, unless it was used.
		first := c.bytes(3) + 4*3 + 4*1024
		s.SetSnapshots(session.Snapshots{Max: 8, Bytes: want - 1})
		if got, bytes := s.SnapshotMemory(); got != 2 || bytes != want-first {
			t.Errorf("%s: %d snapshots of %d bytes, want 2 of %d", c.checkpoint, got, bytes, want-first)
		}
		if err := s.Rewind(20); err != nil {
			t.Fatal(err)
		}
		feed(t, s, []int32{1})
		if err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
		s.SetSnapshots(session.Snapshots{Max: 2, Bytes: want})
		if got, _ := s.SnapshotMemory(); got != 2 {
			t.Errorf("%s: %d snapshots, want 2", c.checkpoint, got)
		}
		// Of 20, which was gone back to, 21 and 40, the last is the oldest.
		if _, stats := answer(t, s, make([]int32, 41), session.Options{MaxTokens: 1}); c.checkpoint == "tiny-qwen35" && stats.Reused != 20 {
			t.Errorf("%s: %d tokens reused, want 20", c.checkpoint, stats.Reused)
		}
		for _, limits := range []session.Snapshots{{}, {Max: 3}, {Max: 3, Bytes: c.bytes(21)}, {Bytes: 1 << 30}} {
			s.SetSnapshots(limits)
			if err := s.Snapshot(); !errors.Is(err, session.ErrSnapshotLimit) {
				t.Errorf("%s: %+v: %v", c.checkpoint, limits, err)
			}
			if got, bytes := s.SnapshotMemory(); got != 0 || bytes != 0 {
				t.Errorf("%s: %d snapshots of %d bytes remain", c.checkpoint, got, bytes)
			}
		}
	}
}

// Two sessions in turn are two sessions.
func TestInterleaved(t *testing.T) {
	for _, c := range converted {
		t.Run(c.name, func(t *testing.T) {
			m := convert(t, c.checkpoint, c.context, c.batch, loadEngine)
			r := rand.New(rand.NewPCG(3, 1))
			ids := [2][]int32{randomIDs(r, 60), randomIDs(r, 60)}
			var want [2][][]float32
			for i := range ids {
				s := newSession(t, m)
				for at := 0; at < 60; at += 20 {
					want[i] = append(want[i], feed(t, s, ids[i][at:at+19]), feed(t, s, ids[i][at+19:at+20]))
				}
			}
			both := [2]*session.Session{newSession(t, m), newSession(t, m)}
			for at := 0; at < 60; at += 20 {
				for i, s := range both {
					if !sameBits(feed(t, s, ids[i][at:at+19]), want[i][at/10]) {
						t.Errorf("session %d, position %d: its logits are not its own", i, at+18)
					}
				}
				for i, s := range both {
					if !sameBits(feed(t, s, ids[i][at+19:at+20]), want[i][at/10+1]) {
						t.Errorf("session %d, position %d: its logits are not its own", i, at+19)
					}
					if err := s.Snapshot(); err != nil {
						t.Fatal(err)
					}
				}
				// One goes elsewhere and comes back; the other stays.
				feed(t, both[0], ids[1][:3])
				if err := both[0].Rewind(at + 20); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The end of the context: an error before anything is fed, or a new state
// and the tokens that are kept.
func TestContextEnds(t *testing.T) {
	for _, c := range converted {
		t.Run(c.name, func(t *testing.T) {
			m := convert(t, c.checkpoint, c.context, c.batch, loadEngine)
			r := rand.New(rand.NewPCG(5, 1))
			ids := randomIDs(r, c.context+1)
			s := newSession(t, m)
			feed(t, s, ids[:c.context-3])
			before := stateBits(t, s)
			if _, err := s.Feed(t.Context(), ids[c.context-3:]); !errors.Is(err, session.ErrContextFull) || s.Pos() != c.context-3 || !slices.Equal(stateBits(t, s), before) {
				t.Errorf("four tokens for three positions: %v, now at %d", err, s.Pos())
			}
			feed(t, s, ids[c.context-3:c.context])
			if _, err := s.Feed(t.Context(), ids[:1]); !errors.Is(err, session.ErrContextFull) {
				t.Errorf("a token behind the end: %v", err)
			}
			for _, err := range s.Generate(t.Context(), ids, session.Options{NoShift: true}) {
				if !errors.Is(err, session.ErrContextFull) {
					t.Errorf("a prompt that is too long: %v", err)
				}
			}

			// Two tokens up to the end, then eight after a shift.
			const pinned = 5
			prompt := ids[:c.context-1]
			got, stats := answer(t, s, prompt, session.Options{MaxTokens: 10, Pinned: pinned})
			fresh := newSession(t, m)
			want, _ := answer(t, fresh, prompt, session.Options{MaxTokens: 2})
			seen := append(slices.Clone(prompt), want...)
			kept := slices.Concat(seen[:pinned], seen[len(seen)-(c.context-pinned)/2:])
			fresh = newSession(t, m)
			rest, _ := answer(t, fresh, kept, session.Options{MaxTokens: 8})
			if want = append(want, rest...); !slices.Equal(got, want) || stats.Shifts != 1 {
				t.Errorf("%v after %d shifts, want %v", got, stats.Shifts, want)
			}
		})
	}
}

// A cache that shifts begins again at position 0 without a new state.
func TestRestartShifting(t *testing.T) {
	m := convert(t, "tiny-gemma4", 256, 16, loadEngine)
	r := rand.New(rand.NewPCG(6, 1))
	ids := randomIDs(r, 256)
	fresh := newSession(t, m)
	want := [][]float32{feed(t, fresh, ids[:70]), feed(t, fresh, ids[70:71])}
	s := newSession(t, m)
	for _, used := range []int{1, 16, 65, 256} {
		feed(t, s, randomIDs(r, used))
		if !s.CanRewind(0) || used > 1 && s.CanRewind(1) {
			t.Errorf("after %d tokens: back to 0 %v, to 1 %v", used, s.CanRewind(0), s.CanRewind(1))
		}
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		if !sameBits(feed(t, s, ids[:70]), want[0]) || !sameBits(feed(t, s, ids[70:71]), want[1]) {
			t.Errorf("after %d tokens, position 0 is not that of a fresh state", used)
		}
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Each(t.Context(), ids[:2], session.AnemllSequence, nil); !errors.Is(err, errors.ErrUnsupported) || s.Pos() != 0 {
		t.Errorf("ANEMLL's sequence: %v", err)
	}
	m = convert(t, "tiny-qwen35", 64, 16, loadEngine)
	s = newSession(t, m)
	if err := s.Each(t.Context(), ids[:2], session.AnemllSequence, nil); !errors.Is(err, errors.ErrUnsupported) || s.Pos() != 0 {
		t.Errorf("ANEMLL's sequence: %v", err)
	}
}

// Rotated caches come back, too.
func TestSnapshotRotated(t *testing.T) {
	for _, syn := range []sessiontest.Package{
		{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true},
		{Context: 24, Window: 8, Batch: 4, Rotate: true, PrefillGives: "hidden"},
		{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true, LastToken: true, Argmax: true},
	} {
		m, _ := openSynthetic(t, &syn)
		tokens := sessiontest.Tokens(20)
		want := syn.Reference(tokens)
		for at := 1; at < 15; at++ {
			s := newSession(t, m)
			feed(t, s, tokens[:at])
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			feed(t, s, []int32{1, 2, 1, 2, 1}) // elsewhere
			if err := s.Rewind(at); err != nil {
				t.Fatal(err)
			}
			if at+5 > syn.Window { // else it went back without the snapshot
				holdScores(t, s, syn.Argmax, want[at-1])
			}
			for i := at; i < 20; i++ {
				feed(t, s, tokens[i:i+1])
				holdScores(t, s, syn.Argmax, want[i])
			}
			_, stats := answer(t, s, tokens[:at+2], session.Options{MaxTokens: 1})
			if stats.Reused != at {
				t.Errorf("at %d: %d tokens reused", at, stats.Reused)
			}
			holdScores(t, s, syn.Argmax, want[at+1])
		}
	}
}

// A snapshot of rotated caches stays one when it is gone back to from before
// the window, and states that got a token twice are not kept as what they are
// not.
func TestSnapshotOfRotatedIsRotated(t *testing.T) {
	syn := sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true}
	m, _ := openSynthetic(t, &syn)
	tokens := sessiontest.Tokens(20)
	want := syn.Reference(tokens)
	s := newSession(t, m)
	feed(t, s, tokens[:12])
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	feed(t, s, []int32{1})
	_, stats := answer(t, s, tokens[:12], session.Options{MaxTokens: 1})
	if stats.Reused != 12 || s.CanRewind(5) || s.Rewind(5) == nil {
		t.Errorf("%d tokens reused; back to 5: %v", stats.Reused, s.CanRewind(5))
	}
	answer(t, s, tokens[:4], session.Options{MaxTokens: 1})
	holdScores(t, s, false, want[3])

	s = newSession(t, m)
	if err := s.Each(t.Context(), tokens[:12], session.AnemllSequence, func(int, []float32) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(); err == nil || !strings.Contains(err.Error(), "ANEMLL") {
		t.Errorf("a snapshot of what is not the tokens' state: %v", err)
	}
	_, stats = answer(t, s, tokens[:14], session.Options{MaxTokens: 1})
	holdScores(t, s, false, want[13])
	if stats.Reused != 0 {
		t.Errorf("%d tokens reused", stats.Reused)
	}
}

func TestNoAllocationsWithSnapshots(t *testing.T) {
	for _, c := range converted[1:4] {
		m := convert(t, c.checkpoint, c.context, c.batch, loadEngine)
		s := newSession(t, m)
		ctx := t.Context()
		for _, n := range []int{1, c.batch} {
			s.Reset()
			ids := make([]int32, n)
			if a := testing.AllocsPerRun(3, func() {
				if _, err := s.Feed(ctx, ids); err != nil {
					t.Fatal(err)
				}
			}); a != 0 {
				t.Errorf("%s: %v allocations for %d tokens", c.name, a, n)
			}
		}
	}
}
